package checkup

import (
	"bytes"
	"fmt"
	"io"

	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/report"
)

// TextOptions adjust [Checkup.WriteText].
type TextOptions struct {
	Screen report.ScreenOptions
	Style  topology.Style // of the tree
}

// WriteText writes the answer for a terminal: what the image's screen shows of a
// run, then the tree of ports between the GPUs, the class and ceiling of each
// pair, and the prediction.
func (c *Checkup) WriteText(w io.Writer, opt TextOptions) error {
	var b bytes.Buffer // which takes everything
	_ = report.Screen(&b, c.run(), opt.Screen)
	if n := len(c.Unknown); n > 0 {
		fmt.Fprintf(&b, "%-9s%d of the sources, see \"unknown\" in the JSON document\n", "unread", n)
	}
	if c.gpus > 0 {
		b.WriteString("\nPCI Express between the GPUs\n\n")
		_ = c.graph.WriteTree(&b, opt.Style)
	}
	if len(c.Pairs) > 0 {
		b.WriteByte('\n')
		_ = c.graph.WriteMatrix(&b)
	}
	for _, f := range c.Predictions {
		fmt.Fprintf(&b, "\npredicted for %s\n\n", f.Driver)
		_ = predict.WriteText(&b, f.Pairs)
	}
	_, err := w.Write(b.Bytes())
	return err
}
