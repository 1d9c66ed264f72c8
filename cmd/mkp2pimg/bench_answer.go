package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/checkup"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// parseAnswer reads the document that bench printed as JSON, or the report of an
// image.
func parseAnswer(text []byte) (*benchAnswer, error) {
	var doc struct {
		Version    int
		Verdict    checks.Verdict
		Reason     string
		Machine    checkup.Machine
		Findings   []checks.Finding
		Result     json.RawMessage
		Comparison *arms.Comparison
	}
	if json.Unmarshal(text, &doc) != nil || doc.Findings == nil {
		return fromReport(text)
	}
	if doc.Version != benchVersion {
		return nil, fmt.Errorf("a result of version %d, this program reads version %d", doc.Version, benchVersion)
	}
	a := &benchAnswer{Version: benchVersion, Verdict: doc.Verdict, Reason: doc.Reason, Machine: doc.Machine, Findings: doc.Findings, Comparison: doc.Comparison}
	if doc.Result != nil {
		r, err := measure.Decode(doc.Result)
		if err != nil {
			return nil, err
		}
		a.Result = &r
	}
	return a, nil
}

// fromReport takes the answer out of a report of the image.
func fromReport(text []byte) (*benchAnswer, error) {
	const neither = "neither a result of mkp2pimg bench nor a report of the image"
	run, err := report.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", neither, err)
	}
	if run.Start == nil && run.Result == nil {
		return nil, errors.New(neither)
	}
	a := &benchAnswer{Version: benchVersion, Verdict: checks.VerdictUnknown, Reason: "the run ended before it reached a verdict",
		Findings: run.Findings, Result: run.Result, Comparison: run.Comparison}
	if run.Verdict != nil {
		a.Verdict, a.Reason = run.Verdict.Verdict, run.Verdict.Reason
	}
	if run.Start == nil {
		return a, nil
	}
	a.Machine.Board = strings.TrimSpace(run.Start.DUT.ID + " " + run.Start.DUT.Name)
	for _, s := range run.Start.DUT.Software {
		switch s.ID {
		case "kernel":
			a.Machine.Kernel = s.Version
		case "driver":
			a.Machine.Driver = strings.TrimSpace(s.Version + " " + s.Revision)
		case "firmware":
			a.Machine.Firmware = s.Name + " " + s.Version
		}
	}
	return a, nil
}
