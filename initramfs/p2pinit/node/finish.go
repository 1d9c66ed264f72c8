package node

import (
	"bytes"
	"context"
	"strings"
	"time"

	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
)

// conclude reaches the verdict, shows it and sends the report a first time: the
// machine may not live to send it whole.
func (n *Node) conclude(ctx context.Context, t *stage.Task) error {
	v := n.reach()
	t.Verdict(v)
	t.Doing("showing the result")
	if n.params.Plan != params.Shell {
		if err := n.show(); err != nil {
			t.Log(report.Warning, "result on the console: %v", err)
		}
	}
	words := []string{string(v.Verdict)}
	if n.params.Report != nil || n.collector != nil {
		n.late(ctx) // a network adapter on USB, for one
	}
	if n.collector != nil {
		words = append(words, n.sendPieces(ctx, t))
	}
	if n.params.Report != nil {
		words = append(words, n.sendWhole(ctx, t))
	}
	t.Summary("%s", strings.Join(words, ", "))
	return nil
}

// sendWhole sends the report as it is by now and says in a few words whether that
// went well.
func (n *Node) sendWhole(ctx context.Context, t *stage.Task) string {
	t.Doing("setting the network up")
	err := n.connect(ctx, false)
	if err == nil {
		t.Doing("sending the report to %s", n.params.Report.Redacted())
		err = n.put(ctx)
	}
	if err != nil {
		// The health of the machine is known: by the specification this is a log
		// line of severity ERROR, not an error of the run.
		t.Log(report.Failed, "report not sent to %s: %v", n.params.Report.Redacted(), err)
		return "report NOT sent: " + err.Error()
	}
	n.mu.Lock()
	n.sent = true
	n.mu.Unlock()
	return "report sent to " + n.params.Report.Redacted()
}

// reach returns the verdict, which is reached once: what happens to the report
// later does not change it.
func (n *Node) reach() report.Verdict {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.verdict == nil {
		v := sumUp(n.findings, n.runner.Outcomes())
		n.verdict = &v
	}
	return *n.verdict
}

func (n *Node) put(ctx context.Context) error {
	return deliver.Put(ctx, n.client, n.params.Report, n.report.Bytes(), n.pace.delay)
}

// show writes the result for a person to the consoles.
func (n *Node) show() error {
	run, err := report.Parse(bytes.NewReader(n.report.Bytes()))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteByte('\n')
	if err := report.Screen(&text, run, report.ScreenOptions{Color: true, Notes: n.kept()}); err != nil {
		return err
	}
	text.WriteByte('\n')
	if n.params.Signals == params.LAVA {
		if err := report.LAVA(&text, run); err != nil {
			return err
		}
	}
	_, err = n.console.Write(text.Bytes())
	return err
}

// after says what comes next and stops the watchdog before it.
func (n *Node) after(_ context.Context, t *stage.Task) error {
	t.Doing("stopping the watchdog")
	if err := n.disarm(); err != nil {
		t.Log(report.Warning, "%v; it may reset the machine within a minute or two", err)
	}
	t.Summary("p2p.after=%s", n.params.Next())
	return nil
}

// finish closes the report and sends it whole.
func (n *Node) finish(ctx context.Context) {
	broken := false
	for _, o := range n.runner.Outcomes() {
		broken = broken || o.Status == report.StatusError && !o.Aside
	}
	if err := n.report.End(report.Outcome(n.reach().Verdict, broken)); err != nil {
		n.say("report: %v", err)
	}
	for _, err := range n.report.Close(flushLimit) {
		n.say("report: %v", err)
	}
	n.mu.Lock()
	sent := n.sent
	n.mu.Unlock()
	if sent {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := n.put(ctx); err != nil {
			n.say("the last lines of the report were not sent: %v", err)
		}
	}
	switch n.params.Next() {
	case params.StartShell, params.Hold:
		n.late(ctx) // the keyboard, for one
		n.handOver(ctx, false)
	case params.PowerOff, params.Reboot:
		n.handOver(ctx, true)
		if n.params.Report != nil && !sent {
			n.insist(ctx)
		}
	}
	n.console.Flush(flushLimit)
}

// insistTry bounds one try of insist: DHCP on a slow link and some PUTs.
const insistTry = 3 * time.Minute

// insist sends the report until a server has it: a machine that switched itself
// off would take the only copy along.
func (n *Node) insist(ctx context.Context) {
	for {
		err := n.tryOnceMore(ctx)
		if err == nil {
			n.say("report sent to %s", n.params.Report.Redacted())
			return
		}
		n.say("report still NOT sent: %v. This machine stays on until it is", err)
		n.console.Flush(flushLimit)
		select {
		case <-ctx.Done():
			return
		case <-time.After(n.pace.delay(longest, err)):
		}
	}
}

// longest is a number of tries after which [deliver.Delay] waits longest.
const longest = 16

func (n *Node) tryOnceMore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, insistTry)
	defer cancel()
	if err := n.connect(ctx, true); err != nil {
		return err
	}
	return n.put(ctx)
}

// warn notes a warning in the report and on the console.
func (n *Node) warn(format string, args ...any) {
	n.report.Log(report.Warning, format, args...)
	n.say("WARNING: "+format, args...)
}
