package checks

import "fmt"

// since reports whether a kernel release is major.minor or later. A release it
// cannot read is taken for a recent one.
func since(release string, major, minor int) bool {
	var a, b int
	if n, err := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 || err != nil {
		return true
	}
	return a > major || a == major && b >= minor
}
