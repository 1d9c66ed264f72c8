package topology

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

// Style are the characters that a tree is drawn with.
type Style struct{ branch, last, down, blank string }

// The styles.
var (
	UTF8  = Style{"├─ ", "└─ ", "│  ", "   "}
	ASCII = Style{"|- ", "`- ", "|  ", "   "}
)

// WriteTree draws the host bridges and ports above the functions that the
// checks judge, and these with their links.
func (g *Graph) WriteTree(w io.Writer, s Style) error {
	var b strings.Builder
	for _, root := range g.Roots {
		if !root.leads() {
			continue
		}
		fmt.Fprintf(&b, "%s%s\n", root.label(), suffix(root))
		g.writeBelow(&b, s, root, "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *Graph) writeBelow(b *strings.Builder, s Style, n *Node, indent string) {
	below := n.leading()
	for i, c := range below {
		line, next := s.branch, s.down
		if i == len(below)-1 {
			line, next = s.last, s.blank
		}
		fmt.Fprintf(b, "%s%s%s%s\n", indent, line, g.label(c), suffix(c))
		g.writeBelow(b, s, c, indent+next)
	}
}

// label returns n as the drawings name it: the number of a GPU goes before.
func (g *Graph) label(n *Node) string {
	if i := g.index(n); i >= 0 {
		return fmt.Sprintf("GPU%d %s", i, strings.Replace(n.label(), " "+string(GPU), "", 1))
	}
	return n.label()
}

// index returns the number of a GPU in address order, -1 for other nodes.
func (g *Graph) index(n *Node) int {
	if n.Kind != GPU {
		return -1
	}
	return slices.IndexFunc(g.facts.GPUs(), func(d *facts.Device) bool { return d == n.Device })
}

// suffix returns what is worth knowing about n beside its name.
func suffix(n *Node) string {
	var words []string
	if n.Link != nil {
		words = append(words, n.Link.text())
	}
	if acs := n.ACS(); acs != "" {
		words = append(words, "ACS "+string(acs))
	}
	if node := n.NUMANode(); node >= 0 && (n.Kind == HostBridge || n.Kind == GPU) {
		words = append(words, fmt.Sprintf("NUMA node %d", node))
	}
	if words == nil {
		return ""
	}
	return "  " + strings.Join(words, ", ")
}

// text returns "Gen4 x16", with the state now and what the ends can do where
// they differ: "Gen4 x16 (now Gen1 x16, capable of Gen5 x16)".
func (l *Link) text() string {
	s := l.Loaded.String()
	var more []string
	if l.Current.Known() && l.Current != l.Loaded {
		more = append(more, "now "+l.Current.String())
	}
	if l.Capable.Known() && l.Capable != l.Loaded {
		more = append(more, "capable of "+l.Capable.String())
	}
	if more == nil {
		return s
	}
	return fmt.Sprintf("%s (%s)", s, strings.Join(more, ", "))
}

// leads reports whether n is a GPU or has one below.
func (n *Node) leads() bool { return n.Kind == GPU || len(n.leading()) > 0 }

// leading returns the children that lead to a GPU.
func (n *Node) leading() []*Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c *Node) bool { return !c.leads() })
}

// legend explains the classes in the words of nvidia-smi topo -m.
const legend = `
  X    self
  PIX  at most one PCIe switch in between
  PXB  several PCIe switches, no host bridge
  PHB  a PCIe host bridge
  NODE host bridges of one NUMA node
  SYS  the interconnect between NUMA nodes
`

// WriteMatrix writes the class of every pair as nvidia-smi topo -m does, with
// the ceiling of writes in GB/s below.
func (g *Graph) WriteMatrix(w io.Writer) error {
	gpus := g.facts.GPUs()
	var b strings.Builder
	if len(gpus) == 0 {
		return nil
	}
	g.matrix(&b, func(p Path) string { return string(p.Class) })
	b.WriteString("\nwrite ceiling, GB/s\n")
	g.matrix(&b, func(p Path) string {
		if p.Ceiling.Write == 0 {
			return "?"
		}
		return fmt.Sprintf("%.2f", float64(p.Ceiling.Write))
	})
	b.WriteString(legend)
	for i, d := range gpus {
		fmt.Fprintf(&b, "  GPU%d %s\n", i, d.Address)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// matrix writes a cell for every ordered pair.
func (g *Graph) matrix(b *strings.Builder, cell func(p Path) string) {
	gpus := g.facts.GPUs()
	rows := [][]string{{""}}
	for i := range gpus {
		rows[0] = append(rows[0], fmt.Sprintf("GPU%d", i))
	}
	for i, x := range gpus {
		row := []string{fmt.Sprintf("GPU%d", i)}
		for _, y := range gpus {
			if x == y {
				row = append(row, "X")
			} else {
				row = append(row, cell(g.path(x, y)))
			}
		}
		rows = append(rows, row)
	}
	wide := 0
	for _, row := range rows {
		for _, c := range row {
			wide = max(wide, len(c))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for _, c := range row {
			fmt.Fprintf(&line, "%-*s", wide+2, c)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
