package export

import (
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// WriteOpenMetrics writes the night as OpenMetrics text 1.0, for a Pushgateway or
// the textfile collector of the node exporter. All are gauges, with the label
// node, and those of pairs with initiator, peer, direction and method.
func (n *Night) WriteOpenMetrics(w io.Writer) error {
	for _, f := range n.families() {
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToOpenMetrics(w, f); err != nil {
			return err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(w)
	return err
}

// family is a metric under construction.
type family struct{ *dto.MetricFamily }

func gauge(name, unit, help string) family {
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if unit != "" {
		f.Unit = &unit
	}
	return family{f}
}

// add adds a value with labels, names and values by turns.
func (f family) add(v float64, labels ...string) {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &v}}
	for i := 0; i < len(labels); i += 2 {
		value := strings.ToValidUTF8(labels[i+1], "\ufffd")
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &value})
	}
	f.Metric = append(f.Metric, m)
}

// flag is 1 for true.
func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// verdicts are the values of the label of mkp2pimg_node_verdict.
var verdicts = []checks.Verdict{checks.VerdictReady, checks.VerdictDegraded, checks.VerdictBlocked, checks.VerdictUnknown, checks.VerdictNoGPU}

func (n *Night) families() []*dto.MetricFamily {
	var (
		night       = gauge("mkp2pimg_night_nodes", "", "How many nodes the night has that the other metrics are of.")
		delivered   = gauge("mkp2pimg_node_delivered", "", "Whether a complete report of the node came.")
		verdict     = gauge("mkp2pimg_node_verdict", "", "1 for the verdict of the node, 0 for the others.")
		regressions = gauge("mkp2pimg_node_regressions", "", "In how much the node is worse than what is normal for it.")
		worst       = gauge("mkp2pimg_node_worst_pair_ratio", "ratio", "The lowest part of its ceiling that a pair of GPUs reached.")
		took        = gauge("mkp2pimg_node_run_seconds", "seconds", "From the offer of the image to the end of the report.")
		ended       = gauge("mkp2pimg_node_run_ended_timestamp_seconds", "seconds", "When the run ended, since the epoch.")
		bandwidth   = gauge("mkp2pimg_pair_bandwidth_bytes_per_second", "bytes_per_second", "What the pair reached, median, where its data was verified.")
		ceiling     = gauge("mkp2pimg_pair_ceiling_bytes_per_second", "bytes_per_second", "What the path of the pair can carry at most.")
		latency     = gauge("mkp2pimg_pair_latency_seconds", "seconds", "Of a load from the peer's memory that the next one depends on.")
		verified    = gauge("mkp2pimg_pair_verified", "", "Whether the data of the pair arrived as it was sent.")
	)
	night.add(float64(len(n.Nodes)), "night", n.Night)
	for _, node := range n.Nodes {
		name := []string{"node", node.Node}
		r, s := node.Run, summary(node.Run)
		delivered.add(flag(r != nil && r.State == farm.Complete), name...)
		if r == nil {
			continue
		}
		count := 0
		for _, c := range r.Changes {
			if c.Worse {
				count++
			}
		}
		regressions.add(float64(count), name...)
		if r.State.Over() {
			took.add(seconds(r), name...)
			ended.add(float64(r.Ended.UnixMilli())/1000, name...)
		}
		if s == nil {
			continue
		}
		if s.Verdict != "" {
			for _, v := range verdicts {
				verdict.add(flag(v == s.Verdict), "node", node.Node, "verdict", string(v))
			}
		}
		if s.Worst != nil {
			worst.add(*s.Worst/100, name...)
		}
		for _, p := range s.Pairs {
			ends := []string{"node", node.Node, "initiator", p.Initiator, "peer", p.Peer}
			way := append(slices.Clip(ends), "direction", p.Direction, "method", p.Method)
			sound := p.Verdict == string(measure.OK) || p.Verdict == string(measure.Slow)
			verified.add(flag(sound), way...)
			if sound && p.GBps > 0 {
				bandwidth.add(p.GBps*1e9, way...)
			}
			if p.Ceiling > 0 {
				ceiling.add(p.Ceiling*1e9, way...)
			}
			if p.LatencyNS > 0 {
				latency.add(p.LatencyNS/1e9, ends...)
			}
		}
	}
	var out []*dto.MetricFamily
	for _, f := range []family{night, delivered, verdict, regressions, worst, took, ended, bandwidth, ceiling, latency, verified} {
		out = append(out, f.MetricFamily)
	}
	return out
}
