package catalog

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/kmod/loadopt"
)

func TestSelect(t *testing.T) {
	for _, f := range Load().Families {
		found, err := Load().Select(f.Name)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for _, g := range found {
			assert.Equal(t, f.Name, g.Family)
		}
	}
	found, err := Load().Select("4090")
	require.NoError(t, err)
	require.Len(t, found, 1)
	_, err = Load().Select("kepler")
	assert.ErrorContains(t, err, `GPU "kepler" is not known`)
}

func TestFirmware(t *testing.T) {
	for id, want := range map[string]string{"1e07": "tu10x", "20b5": "tu10x", "2204": "ga10x", "2684": "ga10x", "2331": "ga10x", "2b85": "ga10x"} {
		found, err := Load().LookupGPU(id)
		require.NoError(t, err)
		assert.Equal(t, want, found[0].Firmware(), found[0].Name)
	}
}

func TestLookupGPU(t *testing.T) {
	for asked, want := range map[string][]string{
		"4090":               {"GeForce RTX 4090"},
		" NVIDIA  RTX 4090 ": {"GeForce RTX 4090"},
		"4090 d":             {"GeForce RTX 4090 D"},
		"4070 ti":            {"GeForce RTX 4070 Ti"},
		"4070 s":             {"GeForce RTX 4070 SUPER", "GeForce RTX 4070 Ti SUPER"},
		"5090":               {"GeForce RTX 5090"},
		"a6000":              {"RTX A6000"},
		"6000 ada":           {"RTX 6000 Ada Generation"},
		"RTX PRO 6000":       {"RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Server Edition"},
		"3080":               {"GeForce RTX 3080", "GeForce RTX 3080"},
		"10de:2684":          {"GeForce RTX 4090"},
		"0x2684":             {"GeForce RTX 4090"},
		"10DE:2BB1":          {"RTX PRO 6000 Blackwell Workstation Edition"},
		"2204":               {"GeForce RTX 3090"},
		"25b6":               {"A2", "A16"},
		"2080ti":             {"GeForce RTX 2080 Ti"},
		"rtx4090":            {"GeForce RTX 4090"},
		"RTX4090D":           {"GeForce RTX 4090 D"},
		"4070ti":             {"GeForce RTX 4070 Ti"},
		"h100":               {"H100 NVL", "H100 80GB HBM3", "H100 PCIe"},
	} {
		t.Run(asked, func(t *testing.T) {
			found, err := Load().LookupGPU(asked)
			require.NoError(t, err)
			var got []string
			for _, g := range found {
				got = append(got, g.Name)
			}
			slices.Sort(want)
			slices.Sort(got)
			assert.Equal(t, want, got)
		})
	}
}

func TestLookupUnknownGPU(t *testing.T) {
	for asked, near := range map[string]string{
		"5099":             "GeForce RTX 5090",
		"4900":             "Quadro RTX 4000", // GeForce RTX 4090 comes next
		"4O90":             "GeForce RTX 4090",
		"5070tii":          "GeForce RTX 5070 Ti",
		"GeForce RTX 4095": "GeForce RTX 4090",
		"RTX A6001":        "RTX A6000",
		"gtx 1080ti":       "GeForce RTX 2080 Ti",
		"RTX PRO 6001":     "RTX PRO 6000 Blackwell Server Edition",
	} {
		t.Run(asked, func(t *testing.T) {
			_, err := Load().LookupGPU(asked)
			var unknown *UnknownGPUError
			require.ErrorAs(t, err, &unknown)
			assert.Len(t, unknown.Near, nearby)
			assert.ErrorContains(t, err, strconv.Quote(asked))
			assert.Equal(t, near, unknown.Near[0])
		})
	}
	for _, asked := range []string{"10de:ffff", "0xffff", "10de:", "10de:2684x"} {
		_, err := Load().LookupGPU(asked)
		var unknown *UnknownGPUError
		require.ErrorAs(t, err, &unknown)
		assert.Empty(t, unknown.Near)
		assert.ErrorContains(t, err, strconv.Quote(asked)+" is not known: name one of the same kind")
	}
}

func TestCanHold(t *testing.T) {
	for asked, can := range map[string]map[uint64]bool{
		"4090":      {0: true, 256: true, 32 << 10: true},
		"2080 Ti":   {0: false, 256: false, 16 << 10: true}, // 11 or 22 GiB
		"1e02":      {0: true, 256: true},                   // its largest BAR1 is not known
		"10de:2bb9": {0: true, 256: true},                   // nor is the memory of this one
	} {
		found, err := Load().LookupGPU(asked)
		require.NoError(t, err)
		for bar1, want := range can {
			assert.Equal(t, want, found[0].CanHold(bar1), "%s with BAR1 of %d MiB", asked, bar1)
		}
	}
}

func TestGPUString(t *testing.T) {
	g, err := Load().LookupGPU("2684")
	require.NoError(t, err)
	assert.Equal(t, "GeForce RTX 4090 24 or 48 GiB (10de:2684)", g[0].String())
	assert.Equal(t, uint64(48<<10), g[0].MostMemory())
	unknown, err := Load().LookupGPU("6000D")
	require.NoError(t, err)
	assert.Equal(t, "RTX 6000D (10de:2bb9)", unknown[0].String())
	assert.Zero(t, unknown[0].MostMemory())
}

func TestModels(t *testing.T) {
	const largest = 72 << 10
	for driver, patch := range map[string]bool{"570.211.01": true, "580.142": false, "580.999.99": false, "999.1": true, "": true} {
		m := Load().Models(driver)
		assert.Equal(t, loadopt.Model{Name: "GeForce RTX 3090", Memory: 24 << 10, Patch: true}, m["2204"], driver)
		assert.Equal(t, loadopt.Model{Name: "RTX PRO 5000 Blackwell or RTX PRO 5000 72GB Blackwell", Memory: largest, Patch: patch},
			m["2bb3"], "driver %q: cards that share an id", driver)
		assert.Zero(t, m["2bb9"].Memory)
	}
}

func TestModelsWithUnknownMemory(t *testing.T) {
	for name, gpus := range map[string][]GPU{
		"first":  {{IDs: []string{"0001"}}, {IDs: []string{"0001"}, Memory: []uint64{8}}},
		"second": {{IDs: []string{"0001"}, Memory: []uint64{8}}, {IDs: []string{"0001"}}},
	} {
		c := Catalog{GPUs: gpus}
		assert.Zero(t, c.Models("580.142")["0001"].Memory, name)
	}
}

func TestOffer(t *testing.T) {
	offer := func(driver string) loadopt.Offer {
		r, err := Lookup(driver)
		require.NoError(t, err)
		o, err := Load().Offer(r)
		require.NoError(t, err)
		return o
	}
	assert.True(t, offer("535").HoldsBack)
	assert.False(t, offer("545").HoldsBack)
	assert.Equal(t, loadopt.Joint, offer("570").BAR1)
	assert.Equal(t, loadopt.Separate, offer("575").BAR1)
	assert.Equal(t, loadopt.StaticOff, offer("575").Static)
	assert.Equal(t, loadopt.StaticAuto, offer("latest").Static)
	_, err := Load().Offer(&Release{Version: "999.1"})
	assert.ErrorContains(t, err, "branch 999")
}

func TestNeed(t *testing.T) {
	for _, test := range []struct {
		driver, family string
		need           Need
		known          bool
	}{
		{"535", "ada", Edits, true},
		{"550", "blackwell", "", false},
		{"565", "blackwell", "", false}, // its generation is that of 570
		{"570", "blackwell", Edits, true},
		{"580", "blackwell", Options, true},
		{"580", "ada", Edits, true},
		{"580", "kepler", "", false},
	} {
		r, err := Lookup(test.driver)
		require.NoError(t, err)
		need, known := Load().Need(r, test.family)
		assert.Equal(t, test.need, need, test)
		assert.Equal(t, test.known, known, test)
	}
	_, known := Load().Need(&Release{Version: "999.1"}, "ada")
	assert.False(t, known)
}

func TestRecommended(t *testing.T) {
	for family, want := range map[string]string{"turing": "580.142", "ampere": "580.142", "ada": "580.142", "hopper": "580.142", "blackwell": "595.71.05"} {
		r := Load().Newest(Load().Family(family).Recommended)
		require.NotNil(t, r, family)
		assert.Equal(t, want, r.Version, family)
	}
	assert.Nil(t, Load().Family("kepler"))
	assert.Nil(t, Load().Newest(530))
}

// TestGPUsAreConsistent checks what the schema can't say.
func TestGPUsAreConsistent(t *testing.T) {
	c := Load()
	used := map[string]bool{}
	ids := []string{}
	for _, g := range c.GPUs {
		ids = append(ids, g.IDs[0])
		assert.NotNil(t, c.Family(g.Family), g.Name)
		for _, trap := range g.Traps {
			assert.Contains(t, c.Traps, trap, g.Name)
			used[trap] = true
		}
		if g.LargestBAR1 > 0 {
			assert.GreaterOrEqual(t, g.LargestBAR1, g.BAR1, g.Name)
		}
	}
	assert.Len(t, used, len(c.Traps), "a trap that no GPU has")
	assert.True(t, slices.IsSorted(ids), "GPUs are not in the order of their ids")
}

func FuzzLookupGPU(f *testing.F) {
	for _, s := range []string{"4090", "10de:2684", "0x", "rtx pro 6000", "\xff \x00", "ǅ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, asked string) {
		found, err := Load().LookupGPU(asked)
		if (err == nil) != (len(found) > 0) {
			t.Errorf("%d GPUs and error %v", len(found), err)
		}
	})
}
