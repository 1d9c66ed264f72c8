package boot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

func sample() *starting {
	return &starting{
		Node: "rack1-1", Image: "p2p", Why: "attempt 1 of 2", Run: "85939779-15d6-4dfe-8eac-9d813928cafc",
		Base: "http://10.0.0.1:8080/images/p2p/a50efffa4f9a19b2", Kernel: "vmlinuz",
		Initrds: []string{"firmware-7467913396bd00ec.zst", "rest-6c65567586a4903c.zst"},
		Args: []string{"console=ttyS1,115200", "p2p.plan=full", "p2p.node=rack1-1",
			"p2p.collect=http://10.0.0.1:8080/v1/runs/85939779-15d6-4dfe-8eac-9d813928cafc", "p2p.token=bFaiw8ze_HR86su1Q9WAM5_C5_gIoRSkVH8EhSQf2Zw"},
		First: "http://10.0.0.1:8080/boot.ipxe",
	}
}

func TestScripts(t *testing.T) {
	script, err := sample().script()
	require.NoError(t, err)
	golden.Equal(t, "testdata/image.ipxe", script)
	script, err = diskScript("rack1-1", "it is not armed")
	require.NoError(t, err)
	golden.Equal(t, "testdata/disk.ipxe", script)
	script, err = firstScript("http://10.0.0.1:8080")
	require.NoError(t, err)
	golden.Equal(t, "testdata/first.ipxe", script)
}

// TestNothingGetsIntoAScript tries to add commands through each value.
func TestNothingGetsIntoAScript(t *testing.T) {
	for _, evil := range []string{"a\nshell", "a\rshell", "a || shell", "a && shell", "${net0/ip}", "a # b", "a \x00", "é", "a\\", `"a"`, "a\tb|", "a\u2028b"} {
		_, err := diskScript("rack1-1", evil)
		require.Error(t, err, evil)
		_, err = firstScript(evil)
		require.Error(t, err, evil)
		for name, change := range map[string]func(*starting){
			"node":   func(s *starting) { s.Node = evil },
			"image":  func(s *starting) { s.Image = evil },
			"why":    func(s *starting) { s.Why = evil },
			"kernel": func(s *starting) { s.Kernel = evil },
			"initrd": func(s *starting) { s.Initrds[1] = evil },
			"arg":    func(s *starting) { s.Args[0] = evil },
			"base":   func(s *starting) { s.Base = evil },
		} {
			s := sample()
			change(s)
			_, err := s.script()
			require.Error(t, err, "%s: %q", name, evil)
		}
	}
	s := sample()
	s.Args = append(s.Args, "p2p.plan=full init=/bin/sh")
	_, err := s.script()
	require.ErrorContains(t, err, "it is empty or has spaces")
}

func TestLongCommandLine(t *testing.T) {
	s := sample()
	s.Args = append(s.Args, "a="+strings.Repeat("b", maxCommandLine))
	_, err := s.script()
	require.ErrorContains(t, err, "Linux takes 2047")
	script, err := sample().script()
	require.NoError(t, err)
	for line := range strings.Lines(string(script)) {
		assert.Less(t, len(line), 1024)
	}
}
