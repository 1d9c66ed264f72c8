package topology

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Sizes of the drawing in pixels.
const (
	boxWidth  = 190
	boxHeight = 60
	gapAcross = 16
	gapDown   = 44
	margin    = 16
	lineStep  = 16 // between the lines of a box
)

// Colours of ports by the state of their access control, which is in their text
// too; other boxes are plain. A page that the drawing is in can choose others: by
// the class of the background, "paper", and of boxes, "acs-redirect" and so on,
// "host" and "gpu".
var acsColours = map[ACSState]string{
	ACSRedirecting: "#f4b6b0",
	ACSClear:       "#bfe3c0",
	ACSAbsent:      "#e4e4e4",
	ACSUnknown:     "#f6e3a1",
}

// acsOrder is the order of the legend.
var acsOrder = []ACSState{ACSRedirecting, ACSClear, ACSAbsent, ACSUnknown}

// box is a node with its place in the drawing.
type box struct {
	*Node
	x, y  int // of the upper left corner
	above *box
}

// WriteSVG draws what [Graph.WriteTree] does as a picture that needs nothing
// else: boxes for host bridges, ports and GPUs, coloured by access control, with
// the links between them. Equal graphs give equal bytes.
func (g *Graph) WriteSVG(w io.Writer) error {
	var boxes []*box
	x, depth := margin, 0
	for _, root := range g.Roots {
		if root.leads() {
			var deepest int
			boxes, x, deepest = place(boxes, root, nil, x, 0)
			depth = max(depth, deepest)
		}
	}
	width := max(x-gapAcross+margin, 2*margin+len(acsOrder)*(boxWidth/2+gapAcross))
	legendY := margin + (depth+1)*(boxHeight+gapDown)
	height := legendY + boxHeight

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	b.WriteString("<title>PCI Express paths between GPUs</title>\n")
	fmt.Fprintf(&b, `<rect class="paper" width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for _, bx := range boxes {
		g.line(&b, bx)
	}
	for _, bx := range boxes {
		g.box(&b, bx)
	}
	for i, state := range acsOrder {
		lx := margin + i*(boxWidth/2+gapAcross)
		fmt.Fprintf(&b, `<rect class="acs-%s" x="%d" y="%d" width="12" height="12" fill="%s" stroke="#333333"/>`+"\n", state, lx, legendY, acsColours[state])
		text(&b, lx+18, legendY+10, "start", "ACS "+string(state))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// place puts a node above the middle of what is below it, from x on. It returns
// the x that is free next and the deepest row.
func place(boxes []*box, n *Node, above *box, x, row int) (all []*box, free, deepest int) {
	bx := &box{Node: n, y: margin + row*(boxHeight+gapDown), above: above}
	boxes = append(boxes, bx)
	start := x
	deepest = row
	for _, c := range n.leading() {
		var d int
		boxes, x, d = place(boxes, c, bx, x, row+1)
		deepest = max(deepest, d)
	}
	if x == start {
		x += boxWidth + gapAcross // nothing below
	}
	bx.x = (start + x - gapAcross - boxWidth) / 2
	return boxes, x, deepest
}

// line draws the way from a box up, with the rate of its link.
func (g *Graph) line(b *strings.Builder, bx *box) {
	if bx.above == nil {
		return
	}
	x1, y1 := bx.above.x+boxWidth/2, bx.above.y+boxHeight
	x2, y2 := bx.x+boxWidth/2, bx.y
	stroke, wide := "#999999", 1
	if bx.Link != nil {
		stroke, wide = "#333333", 2
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="%d"/>`+"\n", x1, y1, x2, y2, stroke, wide)
	if bx.Link != nil {
		text(b, x2+6, y2-6, "start", bx.Link.Loaded.String())
	}
}

// box draws a box with its text.
func (g *Graph) box(b *strings.Builder, bx *box) {
	lines := []string{bx.Name, string(bx.Kind)}
	class, fill := "plain", "#ffffff"
	switch state := bx.ACS(); {
	case bx.Kind == HostBridge:
		class, fill = "host", "#dfe8f6"
	case bx.Kind == GPU:
		class, fill = "gpu", "#cfe8fb"
	case acsColours[state] != "":
		class, fill = "acs-"+string(state), acsColours[state]
		lines = append(lines, "ACS "+string(state))
	}
	if i := g.index(bx.Node); i >= 0 {
		lines[0] = fmt.Sprintf("GPU%d %s", i, bx.Name)
		lines[1] = fmt.Sprintf("%04x:%04x", uint64(bx.Device.Vendor), uint64(bx.Device.Device))
	}
	if bx.Name == "" {
		lines[0] = "place not known"
	}
	if node := bx.NUMANode(); node >= 0 && (bx.Kind == HostBridge || bx.Kind == GPU) {
		lines[1] += fmt.Sprintf(", NUMA node %d", node)
	}
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="#333333"/>`+"\n", class, bx.x, bx.y, boxWidth, boxHeight, fill)
	y := bx.y + (boxHeight-len(lines)*lineStep)/2 + lineStep - 4
	for i, l := range lines {
		text(b, bx.x+boxWidth/2, y+i*lineStep, "middle", l)
	}
}

func text(b *strings.Builder, x, y int, anchor, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}
