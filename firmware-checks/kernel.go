package checks

import "fmt"

// since reports whether a kernel release is major.minor or later. A release it
// cannot read is taken for a recent one.
func since(release string, major, minor int) bool { return sincePatch(release, major, minor, 0) }

// sincePatch is since with the third number, which distributions whose kernels
// do not follow the stable series leave at 0.
func sincePatch(release string, major, minor, patch int) bool {
	var a, b, c int
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &a, &b, &c); n < 2 {
		return true
	}
	switch {
	case a != major:
		return a > major
	case b != minor:
		return b > minor
	}
	return c >= patch
}
