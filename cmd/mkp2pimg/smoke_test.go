package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestKnobHelp: help is given with other settings beside it, too, and needs no image.
func TestKnobHelp(t *testing.T) {
	for _, settings := range [][]string{{"--set", "help"}, {"--set", "acs=on", "--set", "help"}} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"smoke", "out", "--machine", "epyc-4x4090,plain"}, settings...)
		assert.Zero(t, run(t.Context(), args, &stdout, &stderr), stderr.String())
		assert.Regexp(t, `(?m)^epyc-4x4090: `, stdout.String())
		assert.Regexp(t, `(?m)^  acs=off\|on +`, stdout.String())
		assert.Regexp(t, `(?m)^plain: .*\n  no knobs$`, stdout.String())
	}
}
