package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	good := sampleReport(t)
	lines := strings.SplitAfter(strings.TrimSuffix(good, "\n"), "\n")
	without := func(key string) string {
		var out []string
		for _, l := range lines {
			if !strings.Contains(l, key) {
				out = append(out, l)
			}
		}
		return strings.Join(out, "") + "\n"
	}
	tests := map[string]struct {
		in   string
		want string // the first problem
	}{
		"empty":             {"", "no testRunStart"},
		"no first line":     {strings.Join(lines[1:], "") + "\n", "line 1: sequenceNumber is 1, want 0"},
		"gap":               {without("boot took"), "line 3: sequenceNumber is 3, want 2"},
		"not JSON":          {strings.Replace(good, "\n", "\nnvidia: loading\n", 1), "line 2: not a JSON object: nvidia: loading"},
		"text behind":       {strings.Replace(good, "}\n", "} [ 4.2] usb\n", 1), "line 1: not a JSON object"},
		"cut":               {good[:len(good)-1], "cut short"},
		"illegal end":       {strings.Replace(good, `"result":"PASS"`, `"result":"NOT_APPLICABLE"`, 1), "COMPLETE with NOT_APPLICABLE is not a legal pair"},
		"unknown status":    {strings.Replace(good, `{"status":"COMPLETE"}`, `{"status":"DONE"}`, 1), `unknown status "DONE"`},
		"step twice":        {strings.ReplaceAll(good, `"testStepId":"report"`, `"testStepId":"bandwidth"`), "step bandwidth is started twice"},
		"step never opened": {strings.Replace(good, `"testStepId":"report"`, `"testStepId":"x"`, 1), "step report was never started"},
		"value of no type":  {strings.Replace(good, `"value":26.3`, `"value":null`, 1), "value <nil> is not a string, boolean or number"},
		"series count":      {strings.Replace(good, `"totalCount":2`, `"totalCount":3`, 1), "totalCount is 3 after 2 elements"},
		"series index":      {strings.Replace(good, `"index":1`, `"index":2`, 1), "index is 2, want 1"},
		"wrong version":     {strings.Replace(good, `"major":2`, `"major":3`, 1), "schemaVersion 3.0: this program reads 2.x"},
		"no time":           {strings.Replace(good, `"timestamp":"2026-03-05T12:00:01.123456Z"`, `"x":0`, 1), "timestamp is missing"},
		"two kinds":         {strings.Replace(good, `"log":{"severity":"INFO"`, `"error":{"symptom":"s"},"log":{"severity":"INFO"`, 1), "exactly one of testRunStart"},
		"extension":         {strings.Replace(good, `"content":{"a":1}`, `"content":[1]`, 1), "content is not an object"},
		"after the end":     {good + lines[2], "an artifact after testRunEnd"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := Check([]byte(tt.in))
			require.NotEmpty(t, errs)
			var all []string
			for _, e := range errs {
				all = append(all, e.Error())
			}
			assert.Contains(t, strings.Join(all, "\n"), tt.want)
		})
	}
}
