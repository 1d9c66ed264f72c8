package export

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// WriteJSON writes the night as one JSON document after schema.json.
func (n *Night) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(n)
}

// WriteText writes a line for each node, and one for all of them.
func (n *Night) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, node := range n.Nodes {
		word, percent := "-", ""
		if s := summary(node.Run); s != nil && s.Verdict != "" {
			word = string(s.Verdict)
			if s.Worst != nil {
				percent = fmt.Sprintf("%.0f %%", *s.Worst)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", oneLine(node.Node), node.Status, oneLine(word), percent, oneLine(node.why())) // to memory
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, n.total())
	return err
}

// oneLine returns text that can't break a line or a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// why says in a line what is wrong with a node: that it delivered nothing, or
// what got worse, or what is not as expected.
func (n Node) why() string {
	for _, name := range []string{Delivered, Data, Unchanged, Verdict} {
		i := slices.IndexFunc(n.Cases, func(c Case) bool { return c.Name == name && (c.Status == Fail || c.Status == Error) })
		if i >= 0 {
			return n.Cases[i].Message
		}
	}
	return ""
}

// total counts the nodes by status: "night 2026-03-05: 3 nodes: 1 pass, 2 fail".
func (n *Night) total() string {
	count := n.Count()
	var words []string
	for _, s := range []Status{Pass, Fail, Error, Skip} {
		if count[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	nodes := fmt.Sprintf("%d nodes", len(n.Nodes))
	if len(n.Nodes) == 1 {
		nodes = "1 node"
	}
	return strings.TrimSuffix(fmt.Sprintf("night %s: %s: %s", n.Night, nodes, strings.Join(words, ", ")), ": ")
}
