package rm

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// driver plays nvidia.ko with some GPUs.
type driver struct {
	t       *testing.T
	release string
	short   bool // its structures are those of 545 and, for static BAR1, 565
	cards   []cardInfo
	caps    Caps
	status  Statuses
	absent  map[uint32]bool   // minors without a device node
	answer  map[uint32]Status // to commands and classes
	errno   map[uint8]error   // of escapes
	running []uint32
	objects []uint32
	closed  bool
}

const root = 0xc1d00001

func newDriver(t *testing.T, release string) *driver {
	return &driver{t: t, release: release, caps: CapRead | CapWrite | CapPCI | CapBAR1, status: Statuses{IndexNVLink: P2PUnsupported},
		cards: []cardInfo{
			{Valid: 1, Domain: 0x10000, Bus: 0x81, GPUID: 0x8100, Minor: 1, Vendor: 0x10de, Device: 0x2684, FBSize: 32 << 30},
			{Valid: 1, Bus: 1, GPUID: 0x100, Minor: 0, Vendor: 0x10de, Device: 0x2684, FBSize: 32 << 30},
		},
		absent: map[uint32]bool{}, answer: map[uint32]Status{}, errno: map[uint8]error{}}
}

func (d *driver) Attach(minor uint32) error {
	if d.absent[minor] {
		return &fs.PathError{Op: "open", Path: fmt.Sprint("/dev/nvidia", minor), Err: syscall.ENOENT}
	}
	for _, c := range d.cards {
		if c.Minor == minor {
			d.running = append(d.running, c.GPUID)
		}
	}
	return nil
}

func (d *driver) Close() error {
	d.closed = true
	return nil
}

// in reads a structure from a buffer and out writes one there.
func (d *driver) in(b buffer, v any) { require.NoError(d.t, decode(b.Bytes, v)) }
func (d *driver) out(b buffer, v any) {
	text := encode(v)
	require.Len(d.t, b.Bytes, len(text))
	copy(b.Bytes, text)
}

func (d *driver) Escape(c call) error {
	if err := d.errno[c.Number]; err != nil {
		return err
	}
	arg := c.Buffers[0]
	switch c.Number {
	case escCheckVersion:
		v := versionParams{Reply: 1}
		copy(v.Version[:], d.release)
		d.out(arg, v)
	case escCardInfo:
		var all [maxGPUs]cardInfo
		copy(all[:], d.cards)
		d.out(arg, all)
	case escRMAlloc:
		var p allocParams
		d.in(arg, &p)
		if p.Class == classRoot {
			p.New = root
		}
		if len(c.Buffers) > 1 {
			assert.Equal(d.t, allocPointer, arg.Next)
			assert.Len(d.t, c.Buffers[1].Bytes, int(p.ParamsSize))
		}
		p.Status = uint32(d.answer[p.Class])
		if p.Status == 0 {
			assert.NotContains(d.t, d.objects, p.New)
			d.objects = append(d.objects, p.New)
		}
		d.out(arg, p)
	case escRMFree:
		var p freeParams
		d.in(arg, &p)
		assert.Equal(d.t, freeParams{Root: root, Old: root}, p)
		d.objects = nil
	case escRMControl:
		var p controlParams
		d.in(arg, &p)
		assert.Contains(d.t, d.objects, p.Object)
		assert.Equal(d.t, controlPointer, arg.Next)
		assert.Len(d.t, c.Buffers[1].Bytes, int(p.ParamsSize))
		p.Status = uint32(d.answer[p.Cmd])
		if p.Status == 0 {
			p.Status = uint32(d.control(p.Cmd, c.Buffers[1:]))
		}
		d.out(arg, p)
	default:
		return syscall.EINVAL
	}
	return nil
}

func (d *driver) control(cmd uint32, b []buffer) Status {
	params := b[0]
	switch cmd {
	case cmdAttachedIDs:
		var ids attachedIDs
		for i := range ids.IDs {
			ids.IDs[i] = invalidID
		}
		copy(ids.IDs[:], d.running)
		d.out(params, ids)
	case cmdIDInfo:
		var p idInfo
		d.in(params, &p)
		p.DeviceInstance = p.ID >> 8
		d.out(params, p)
	case cmdFBInfo:
		assert.Equal(d.t, fbListPointer, params.Next)
		d.out(b[1], fbInfo{Index: fbRAMSize, Data: 24 << 20})
	case cmdStaticBAR1:
		switch {
		case d.short && len(params.Bytes) == len(encode(staticBAR1At0{})):
			d.out(params, staticBAR1At0{Enabled: 1, Size: 24 << 30})
		case d.short:
			return InvalidParamStruct
		default:
			d.out(params, staticBAR1{Enabled: 1, Start: 512 << 20, Size: 24 << 30})
		}
	case cmdP2PCaps:
		var p p2pCaps
		d.in(params, &p)
		if d.short && len(params.Bytes) != len(encode(p)) {
			return InvalidParamStruct
		}
		for _, id := range p.IDs[:p.Count] {
			if !slices.Contains(d.running, id) {
				return 0x1f
			}
		}
		p.Caps, p.Status, p.PeerIDs[1] = d.caps, d.status, 3
		if d.short {
			d.out(params, p)
		} else {
			d.out(params, p2pCapsEGM{P2P: p})
		}
	}
	return OK
}

// survey asks a driver everything and checks that nothing is left behind in it.
func survey(t *testing.T, d *driver) *Survey {
	c, err := newClient(d)
	require.NoError(t, err)
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.True(t, d.closed)
	assert.Empty(t, d.objects)
	return s
}

func TestSurvey(t *testing.T) {
	s := survey(t, newDriver(t, "580.142"))
	gpu := func(bdf string, id, minor uint32) Surveyed {
		return Surveyed{GPU: GPU{BDF: bdf, ID: id, Minor: minor, Vendor: 0x10de, Device: 0x2684, BAR1: 32 << 30},
			Running: true, Memory: 24 << 30, StaticBAR1: &StaticBAR1{Enabled: true, Start: 512 << 20, Size: 24 << 30}}
	}
	pair := func(a, b string) Pair {
		return Pair{A: a, B: b, Caps: 0x2043, Path: BAR1, Status: Statuses{IndexNVLink: P2PUnsupported}, PeerID: 3}
	}
	want := &Survey{Driver: "580.142",
		GPUs:  []Surveyed{gpu("0000:01:00.0", 0x100, 0), gpu("10000:81:00.0", 0x8100, 1)},
		Pairs: []Pair{pair("0000:01:00.0", "10000:81:00.0"), pair("10000:81:00.0", "0000:01:00.0")},
	}
	assert.Equal(t, want, s)

	text, err := json.Marshal(s)
	require.NoError(t, err)
	var back Survey
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, want, &back)
}

// The structures of old releases are shorter.
func TestOldLayouts(t *testing.T) {
	d := newDriver(t, "565.77")
	d.short = true
	s := survey(t, d)
	assert.Equal(t, BAR1, s.Pairs[0].Path)
	assert.Equal(t, &StaticBAR1{Enabled: true, Size: 24 << 30}, s.GPUs[0].StaticBAR1)
	assert.Empty(t, s.GPUs[0].Errors)
}

// What one question fails at doesn't cost the answers to the others.
func TestPartOfSurvey(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(d *driver)
		check func(t *testing.T, s *Survey)
	}{
		"static BAR1 unknown to the release": {
			func(d *driver) { d.answer[cmdStaticBAR1] = NotSupported },
			func(t *testing.T, s *Survey) {
				assert.Nil(t, s.GPUs[0].StaticBAR1)
				assert.Empty(t, s.GPUs[0].Errors)
			}},
		"static BAR1 fails": {
			func(d *driver) { d.answer[cmdStaticBAR1] = 0x0f },
			func(t *testing.T, s *Survey) {
				assert.Equal(t, []string{"resource manager answers NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO for 0000:01:00.0 with NV_ERR_GPU_IS_LOST: power the machine off, then on"}, s.GPUs[0].Errors)
				assert.Equal(t, BAR1, s.Pairs[0].Path)
			}},
		"no device": {
			func(d *driver) { d.answer[classDevice] = 0x1b },
			func(t *testing.T, s *Survey) {
				require.Len(t, s.GPUs[0].Errors, 1)
				assert.Equal(t, "resource manager answers NV01_DEVICE_0 for 0000:01:00.0 with NV_ERR_INSUFFICIENT_PERMISSIONS: run as root", s.GPUs[0].Errors[0])
			}},
		"no node": {
			func(d *driver) { d.absent[1] = true },
			func(t *testing.T, s *Survey) {
				assert.True(t, s.GPUs[0].Running)
				assert.False(t, s.GPUs[1].Running)
				assert.Equal(t, []string{"GPU 10000:81:00.0: open /dev/nvidia1: no such file or directory"}, s.GPUs[1].Errors)
				for _, p := range s.Pairs {
					assert.Equal(t, "the driver has not started GPU 10000:81:00.0", p.Error)
					assert.Empty(t, p.Path)
				}
			}},
		"no node, kept running by others": {
			func(d *driver) {
				d.absent[1] = true
				d.running = []uint32{0x8100}
			},
			func(t *testing.T, s *Survey) { assert.Equal(t, BAR1, s.Pairs[0].Path) }},
		"pair fails": {
			func(d *driver) { d.answer[cmdP2PCaps] = 0x65 },
			func(t *testing.T, s *Survey) {
				assert.Equal(t, "resource manager answers NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2 for 0000:01:00.0 and 10000:81:00.0 with NV_ERR_TIMEOUT: see the kernel's log (dmesg) for links that did not train", s.Pairs[0].Error)
			}},
		"no GPU": {
			func(d *driver) { d.cards = nil },
			func(t *testing.T, s *Survey) { assert.Empty(t, s.Pairs) }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, "580.142")
			tc.spoil(d)
			tc.check(t, survey(t, d))
		})
	}
}

func TestNoClient(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(d *driver)
		want  string
	}{
		"version": {func(d *driver) { d.errno[escCheckVersion] = syscall.EINVAL }, "nvidia driver refuses NV_ESC_CHECK_VERSION_STR: invalid argument"},
		"cards":   {func(d *driver) { d.errno[escCardInfo] = syscall.EIO }, "nvidia driver refuses NV_ESC_CARD_INFO: input/output error"},
		"root":    {func(d *driver) { d.answer[classRoot] = 0x1234 }, "resource manager answers NV01_ROOT_CLIENT with NV_STATUS 0x1234"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, "580.142")
			tc.spoil(d)
			_, err := newClient(d)
			assert.EqualError(t, err, tc.want)
			assert.True(t, d.closed)
		})
	}
}

func TestSurveyEnds(t *testing.T) {
	c, err := newClient(newDriver(t, "580.142"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Survey(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestPath(t *testing.T) {
	for caps, want := range map[Caps]Path{
		0:                    NoPath,
		CapRead | CapWrite:   NoPath,
		0x47:                 Mailbox, // 535 to 610, read write prop pci
		0x2007:               BAR1,    // 535, read write prop bar1
		0x2043:               BAR1,    // since 545, read write pci bar1
		0x1b:                 NVLink,
		0x1b | CapLoopback:   NVLink,
		0x780:                NVLinkIndirect,
		0x1013:               C2C,
		0x1013 | CapNVLink:   C2C,
		CapPCI | CapLoopback: Mailbox,
	} {
		assert.Equal(t, want, caps.Path(), "%v", caps)
	}
	assert.Equal(t, "0x2043 write read pci bar1", Caps(0x2043).String())
	assert.Equal(t, "read=OK write=CNS nvlink=GNS atomics=TNS prop=DR loopback=NS pci=NVLINK-FAILED c2c=7 bar1=OK",
		Statuses{0, 1, 2, 3, 4, 5, 6, 7, 0}.String())
}
