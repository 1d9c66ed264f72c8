package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestExamplesCommandLines parses the command lines in the examples and in their
// manual as mkp2pimg would.
func TestExamplesCommandLines(t *testing.T) {
	lines := map[string][]string{} // by file
	for _, file := range []string{"examples/cron/mkp2pimg-farm", "examples/systemd/mkp2pimg-farm.service", "docs/engines.md"} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)(?:^|[/ =])mkp2pimg (farm run(?: --?\S+| \$\S+| [a-z0-9/.,-]+)*)`).FindAllStringSubmatch(string(text), -1) {
			lines[file] = append(lines[file], m[1])
		}
	}
	text, err := os.ReadFile("../../examples/kubernetes/cronjob.yaml")
	require.NoError(t, err)
	var job yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &job))
	if args := find(&job, "args"); assert.NotNil(t, args) {
		var words []string
		require.NoError(t, args.Decode(&words))
		lines["cronjob.yaml"] = []string{strings.Join(words, " ")}
	}
	require.Len(t, lines, 4)
	for file, all := range lines {
		for _, line := range all {
			c, rest, err := newRoot().Find(strings.Fields(line))
			require.NoError(t, err, "%s: %s", file, line)
			require.Equal(t, "mkp2pimg farm run", c.CommandPath(), "%s: %s", file, line)
			assert.NoError(t, c.ParseFlags(rest), "%s: %s", file, line)
			assert.Empty(t, c.Flags().Args(), "%s: %s", file, line)
		}
	}
}

// find returns the value of the first key of a name.
func find(n *yaml.Node, key string) *yaml.Node {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Value == key {
			return n.Content[i+1]
		}
		if found := find(c, key); found != nil {
			return found
		}
	}
	return nil
}
