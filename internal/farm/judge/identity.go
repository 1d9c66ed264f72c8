package judge

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"mkp2pimg/internal/farm"
)

// identity reports that a report is of another machine than the node is known as.
func identity(node farm.Node, s *farm.Summary) []farm.Change {
	if s == nil {
		return nil
	}
	var out []farm.Change
	other := func(name, known, told string) {
		out = append(out, farm.Change{
			Kind: farm.HardwareChanged, Subject: name, Before: known + " (the node's)", After: told, Worse: true,
			Fix: fmt.Sprintf("The report is of another machine than %s: look which machine starts with %s. If the board of %s was replaced, correct the node in lab.yaml.",
				node.Name, orUnknown(node.MAC), node.Name),
		})
	}
	if told := s.Settings[SystemUUID]; told != "" && node.UUID != "" && !sameUUID(told, node.UUID) {
		other(SystemUUID, node.UUID, told)
	}
	told := []string{s.Settings[SystemSerial], s.Settings[BoardSerial]}
	if node.Serial != "" && told[0] != "" && !strings.EqualFold(node.Serial, told[0]) && !strings.EqualFold(node.Serial, told[1]) {
		other(SystemSerial, node.Serial, told[0])
	}
	return out
}

func orUnknown(mac string) string {
	if mac == "" {
		return "its name"
	}
	return mac
}

// sameUUID tells whether two UUIDs are the same. Firmware before SMBIOS 2.6 and
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
