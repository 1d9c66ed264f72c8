package rm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		line      string
		want      Keys
		perDevice bool
	}{
		"none":       {`RegistryDwords: ""`, Keys{}, false},
		"several":    {`RegistryDwords: "ForceP2P=0x11;RMPcieP2PType=1;"`, Keys{"ForceP2P": 0x11, "RMPcieP2PType": 1}, false},
		"blanks":     {`RegistryDwords: " ForceP2P = 17 ; "`, Keys{"ForceP2P": 17}, false},
		"last wins":  {`RegistryDwords: "RMForceP2PType=1;RMForceP2PType=2"`, Keys{"RMForceP2PType": 2}, false},
		"octal":      {`RegistryDwords: "ForceP2P=021"`, Keys{"ForceP2P": 17}, false},
		"zero":       {`RegistryDwords: "RMPcieP2PType=0"`, Keys{"RMPcieP2PType": 0}, false},
		"no number":  {`RegistryDwords: "a=x;b=;=1;c;d=1=2;e=7z"`, Keys{"a": 0, "e": 7}, false},
		"32 bits":    {`RegistryDwords: "a=0x1ffffffff"`, Keys{"a": 0xffffffff}, false},
		"per device": {`RegistryDwordsPerDevice: "pci=0000:01:00.0;ForceP2P=0"`, Keys{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, perDevice := ParseKeys("EnableMSI: 1\n" + tc.line + "\nRmMsg: \"\"\n")
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.perDevice, perDevice)
		})
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add("RegistryDwords: \"ForceP2P=0x11;RMPcieP2PType=1\"\nRegistryDwordsPerDevice: \"\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, _ := ParseKeys(text)
		assert.NotContains(t, keys, "")
	})
}
