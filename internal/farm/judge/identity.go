package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"mkp2pimg/internal/farm"
)

// identify adds to the changes of a run that its report is of another machine than
// the node is known as. What is known of the node goes before what its earlier
// reports said, and where the machine is the node's, a new name of its board is
// that of a new firmware.
func identify(node farm.Node, s *farm.Summary, changes []farm.Change) []farm.Change {
	if s == nil {
		return changes
	}
	known := map[string]bool{}
	var others []farm.Change
	check := func(name, is string, told ...string) {
		if is == "" || told[0] == "" {
			return
		}
		known[name] = true
		if slices.ContainsFunc(told, func(t string) bool { return sameUUID(t, is) }) {
			return
		}
		others = append(others, farm.Change{
			Kind: farm.HardwareChanged, Subject: name, Before: is + " (the node's)", After: told[0], Worse: true,
			Fix: fmt.Sprintf("The report is of another machine than %s: look which machine starts with %s. If the board of %s was replaced, correct the node in lab.yaml.",
				node.Name, cmp.Or(node.MAC, "its name"), node.Name),
		})
	}
	check(SystemUUID, node.UUID, s.Settings[SystemUUID])
	check(SystemSerial, node.Serial, s.Settings[SystemSerial], s.Settings[BoardSerial])
	confirmed := len(known) > 0 && others == nil
	for _, c := range changes {
		switch {
		case known[c.Subject], confirmed && identifies(c.Subject):
			continue
		case confirmed && describes(c.Subject):
			c.Worse, c.Fix = false, ""
		}
		others = append(others, c)
	}
	return others
}

// describes tells whether a setting is a name of the machine's kind.
func describes(name string) bool {
	return name == BoardName || name == BoardVendor || name == SystemProduct || name == SystemVendor
}

// sameUUID tells whether two UUIDs, or serial numbers, are the same. Firmware before SMBIOS 2.6 and
// some programs have the first three fields in the other byte order (SMBIOS
// specification, "System — UUID").
func sameUUID(a, b string) bool {
	x, errX := uuid.Parse(a)
	y, errY := uuid.Parse(b)
	if errX != nil || errY != nil {
		return strings.EqualFold(a, b)
	}
	if x == y {
		return true
	}
	for _, field := range [][]byte{x[0:4], x[4:6], x[6:8]} {
		for i, j := 0, len(field)-1; i < j; i, j = i+1, j-1 {
			field[i], field[j] = field[j], field[i]
		}
	}
	return x == y
}
