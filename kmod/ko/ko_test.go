package ko

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:generate as --64 testdata/provider.S -o testdata/provider.ko
//go:generate as --64 testdata/user.S -o testdata/user.ko

const vermagic = "6.12.1 SMP preempt mod_unload modversions"

func open(t *testing.T, name string) *Module {
	t.Helper()
	m, err := Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	return m
}

func TestOpen(t *testing.T) {
	m := open(t, "provider.ko")
	assert.Equal(t, "prov", m.Name)
	assert.Equal(t, "1.2", m.Version)
	assert.Equal(t, vermagic, m.Vermagic)
	assert.Equal(t, []string{"alpha", "beta"}, m.Depends)
	assert.Equal(t, []string{"pci:v000010DEd*sv*sd*bc03sc02i00*"}, m.Aliases)
	assert.Equal(t, []string{"acme/1.2/gsp.bin"}, m.Firmware)
	assert.Equal(t, []string{"pre: crc32c"}, m.Softdeps)
	assert.Equal(t, []string{"Dual MIT/GPL"}, m.Licenses)
	assert.Equal(t, []string{"kmalloc", "printk"}, m.Imports)
	assert.Equal(t, map[string]uint32{"printk": 0xaaaaaaaa, "kmalloc": 0xbbbbbbbb}, m.CRCs)
	assert.Equal(t, Exports{
		"plain":     {Symbol: "plain", Module: "prov", CRC: 0x11111111},
		"plain_gpl": {Symbol: "plain_gpl", Module: "prov", Namespace: "ACME", GPL: true, CRC: 0x22222222},
	}, m.Exports)
}

func TestOpenExtendedVersions(t *testing.T) {
	m := open(t, "user.ko")
	assert.Equal(t, map[string]uint32{"printk": 0xaaaaaaaa, "plain": 0x11111111, "plain_gpl": 0x22222222}, m.CRCs)
	assert.Equal(t, []string{"perhaps"}, m.Weak)
	assert.Empty(t, m.Exports)
}

func TestOpenErrors(t *testing.T) {
	whole, err := os.ReadFile("testdata/provider.ko")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"empty":      {nil, "not a kernel module"},
		"compressed": {[]byte("\xfd7zXZ\x00" + strings.Repeat("x", 100)), "not a kernel module"},
		"truncated":  {whole[:len(whole)/2], "not a kernel module"},
		"executable": {bytes.Replace(whole, []byte{1, 0, 0x3e, 0}, []byte{2, 0, 0x3e, 0}, 1), "relocatable"},
		"no modinfo": {bytes.Replace(whole, []byte(".modinfo"), []byte(".modinf0"), 1), "no .modinfo section"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.ko")
			require.NoError(t, os.WriteFile(path, tc.data, 0o600))
			_, err := Open(path)
			assert.ErrorContains(t, err, tc.want)
			assert.ErrorContains(t, err, path)
		})
	}
	_, err = Open("testdata/none.ko")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

const symvers = "0xaaaaaaaa\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n" +
	"0xbbbbbbbb\tkmalloc\tvmlinux\tEXPORT_SYMBOL_GPL\t\n" +
	"0xcccccccc\tdma_buf_get\tdrivers/dma-buf/dma-buf\tEXPORT_SYMBOL_GPL\tDMA_BUF\n"

func kernel(t *testing.T) Exports {
	t.Helper()
	e, err := ParseSymvers(strings.NewReader(symvers))
	require.NoError(t, err)
	return e
}

func TestParseSymvers(t *testing.T) {
	assert.Equal(t, Exports{
		"printk":      {Symbol: "printk", Module: "vmlinux", CRC: 0xaaaaaaaa},
		"kmalloc":     {Symbol: "kmalloc", Module: "vmlinux", CRC: 0xbbbbbbbb, GPL: true},
		"dma_buf_get": {Symbol: "dma_buf_get", Module: "dma_buf", CRC: 0xcccccccc, GPL: true, Namespace: "DMA_BUF"},
	}, kernel(t))

	for in, want := range map[string]string{
		"0x1\tprintk\n":                     "line 1: 2 fields",
		symvers + "x\tf\tvmlinux\tEXPORT\n": "line 4: CRC",
		"0x123456789\tf\tvmlinux\tEXPORT\n": "line 1: CRC",
		strings.Repeat("x", 1<<17):          "token too long",
	} {
		_, err := ParseSymvers(strings.NewReader(in))
		assert.ErrorContains(t, err, want)
	}
}

func TestCheckImports(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(m *Module, kernel, prov Exports)
		problem string
	}{
		"fits": {func(*Module, Exports, Exports) {}, ""},
		"weak symbol offered": {func(m *Module, k, _ Exports) {
			k["perhaps"] = Export{Symbol: "perhaps", Module: "vmlinux", CRC: 7}
			m.CRCs["perhaps"] = 7
		}, ""},
		"kernel without modversions": {func(m *Module, _, _ Exports) { m.CRCs = nil }, ""},
		"other kernel":               {func(m *Module, _, _ Exports) { m.Vermagic = "6.1.0 SMP" }, `vermagic "6.1.0 SMP", the kernel has "6.12.1 SMP`},
		"missing":                    {func(_ *Module, _, p Exports) { delete(p, "plain") }, "symbol plain is exported by nothing"},
		"changed type": {func(_ *Module, _, p Exports) { p["plain"] = Export{Module: "prov", CRC: 5} },
			"symbol plain of prov has CRC 0x00000005, the module was built for 0x11111111"},
		"layout": {func(m *Module, k, _ Exports) {
			k["module_layout"] = Export{Symbol: "module_layout", Module: "vmlinux", CRC: 1}
			m.CRCs["module_layout"] = 2
		}, "symbol module_layout of vmlinux has CRC 0x00000001, the module was built for 0x00000002"},
		"no CRC":      {func(m *Module, _, _ Exports) { delete(m.CRCs, "printk") }, "symbol printk has no CRC"},
		"proprietary": {func(m *Module, _, _ Exports) { m.Licenses = []string{"NVIDIA"} }, "symbol plain_gpl of prov is for GPL-compatible modules"},
		"namespace":   {func(m *Module, _, _ Exports) { m.Info["import_ns"] = nil }, "symbol plain_gpl of prov is in namespace ACME"},
		"depends":     {func(m *Module, _, _ Exports) { m.Depends = nil }, "symbol plain is from prov, which the module does not depend on"},
	} {
		t.Run(name, func(t *testing.T) {
			m, k, p := open(t, "user.ko"), kernel(t), maps.Clone(open(t, "provider.ko").Exports)
			tc.edit(m, k, p)
			r := CheckImports(m, vermagic+" ", k, p)
			if tc.problem == "" {
				require.NoError(t, r.Err())
				assert.Equal(t, 3, r.Imports)
				assert.Equal(t, 2, r.From["prov"])
				return
			}
			assert.ErrorContains(t, r.Err(), "module user does not fit: ")
			assert.ErrorContains(t, r.Err(), tc.problem)
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"provider.ko", "user.ko"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(bytes.NewReader(data))
		if err != nil {
			assert.Nil(t, m)
			return
		}
		_ = CheckImports(m, m.Vermagic, m.Exports)
	})
}

func FuzzParseSymvers(f *testing.F) {
	f.Add(symvers)
	f.Fuzz(func(t *testing.T, data string) {
		e, err := ParseSymvers(strings.NewReader(data))
		assert.True(t, (e == nil) != (err == nil))
	})
}
