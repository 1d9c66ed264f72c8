package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

func TestOptionsOfAnInstalledSystem(t *testing.T) {
	for name, args := range map[string]string{
		"options-any.txt":           "",
		"options-535-3090.txt":      "--driver 535.261.03 --gpu 3090 --gpu 3090",
		"options-575.txt":           "--driver 575 --gpu 3090 --bar1 256M",
		"options-580-4090.txt":      "--driver 580 --gpu 4090 --bar1 32G",
		"options-580-stock.txt":     "--driver 580 --gpu 3090 --bar1 32G --edits none",
		"options-595-5090.txt":      "--driver 595 --gpu 5090 --gpu 5090 --bar1 32G --headless",
		"options-595-console.txt":   "--driver 595 --gpu 5090 --bar1 32768MiB",
		"options-595-mixed.json":    "--driver 595 --gpu 10de:2bb1 --gpu 4090 --bar1 128G --bar1 32G --json",
		"options-580-2080ti.txt":    "--driver 580 --gpu 2080ti --bar1 256M",
		"options-580-able.txt":      "--driver 580 --gpu 2080ti --gpu 4090",
		"options-580-ambiguous.txt": "--driver 580 --gpu pro_5000 --bar1 64G",
	} {
		t.Run(name, func(t *testing.T) {
			line := append([]string{"options"}, strings.Fields(args)...)
			for i := range line {
				line[i] = strings.ReplaceAll(line[i], "_", " ")
			}
			code, stdout, stderr := command(t, line...)
			assert.Equal(t, exitOK, code, stderr)
			golden.Equal(t, "testdata/"+name, stdout)
		})
	}
}

func TestOptionsRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--driver 530":                     "driver \"530\" is not known",
		"--gpu 5099":                       "GPU \"5099\" is not known",
		"--driver 550 --gpu 5090":          "driver 550.163.01 does not know the GPU family blackwell of GeForce RTX 5090: choose 570 or later",
		"--driver 595 --gpu 80gb":          "name it by its PCI id",
		"--edits some":                     "--edits \"some\": choose auto, minimal, none or all",
		"--gpu 3090 --bar1 32":             "\"32\" is no size such as 256M or 32G",
		"--gpu 3090 --bar1 0G":             "a BAR of size 0",
		"--bar1 32G":                       "1 sizes of BAR1 are given for 0 GPUs",
		"--gpu 3090 --bar1 32G --bar1 32G": "2 sizes of BAR1 are given for 1 GPUs",
		"--gpu 3090 --bar1 99999999999999999999999999G": "is no size",
	} {
		t.Run(args, func(t *testing.T) {
			code, stdout, stderr := command(t, append([]string{"options"}, strings.Fields(args)...)...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, says)
		})
	}
}

// TestOptionsArePrintedForModprobe checks that what is printed is a file for modprobe.d: comments and
// one line of options.
func TestOptionsArePrintedForModprobe(t *testing.T) {
	_, stdout, _ := command(t, "options", "--gpu", "3090")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, line := range lines[:len(lines)-1] {
		require.True(t, strings.HasPrefix(line, "#"), line)
	}
	require.True(t, strings.HasPrefix(lines[len(lines)-1], "options nvidia "))
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]uint64{
		"256M": 256 << 20, "32G": 32 << 30, " 32768 MiB ": 32 << 30, "32gb": 32 << 30, "1TiB": 1 << 40,
	} {
		got, err := parseSize(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
}
