package facts

import "regexp"

// What identifies one machine or person rather than its kind.
var private = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<uuid>"},
	// Six or, as in BOOTIF, seven bytes. A PCI address has fewer.
	{regexp.MustCompile(`(?i)\b(?:[0-9a-f]{2}[:-]){5,6}[0-9a-f]{2}\b`), "<mac>"},
	{regexp.MustCompile(`://[^/@\s]+@`), "://<user>@"},
	// What entitles the image to deliver its report.
	{regexp.MustCompile(`\bp2p\.token="?[^\s"]+`), "p2p.token=…"},
}

// redact returns s without what is private, unless that was asked for.
func (g *gatherer) redact(s string) string {
	if g.private {
		return s
	}
	return redact(s)
}

// redact replaces UUIDs, MAC addresses, credentials in URLs and tokens.
func redact(s string) string {
	for _, p := range private {
		s = p.re.ReplaceAllString(s, p.with)
	}
	return s
}
