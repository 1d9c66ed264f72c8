package rm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// kernel is the driver behind /dev/nvidiactl.
type kernel interface {
	// Escape runs one ioctl. The first buffer is its argument; each further one
	// is reached through the address that the one before it holds at Next.
	Escape(c call) error
	// Attach keeps /dev/nvidia<minor> open, by which the driver starts the GPU and
	// keeps it running.
	Attach(minor uint32) error
	Close() error
}

// call is one ioctl.
type call struct {
	Number  uint8
	Buffers []buffer
}

// buffer is memory that the driver reads and writes. Next is the offset at which
// the address of the next buffer goes.
type buffer struct {
	Bytes []byte
	Next  int
}

// Handles that the client gives to its objects. They only have to differ from
// each other and from the client's own, which the resource manager chooses.
const (
	deviceHandle    = 0x6d700000
	subdeviceHandle = 0x6d710000
)

// Client is a client of the resource manager. It is not safe for use by several
// goroutines.
type Client struct {
	kernel  kernel
	root    uint32
	version string
	gpus    []GPU
	objects map[uint32]object // subdevices, by the GPU's ID
}

// object is a subdevice, or why there is none.
type object struct {
	handle uint32
	err    error
}

// GPU is a GPU as the driver knows it.
type GPU struct {
	BDF    string `json:"bdf"`
	ID     uint32 `json:"gpu_id"` // the resource manager's name for it
	Minor  uint32 `json:"minor"`  // of /dev/nvidia<minor>
	Vendor uint16 `json:"vendor"`
	Device uint16 `json:"device"`
	BAR1   uint64 `json:"bar1"` // bytes
}

// newClient makes a client of the resource manager behind k and starts every GPU
// it can: one that is not running has no capabilities.
func newClient(k kernel) (*Client, error) {
	c := &Client{kernel: k, objects: map[uint32]object{}}
	for _, step := range []func() error{c.askVersion, c.listGPUs, c.allocRoot} {
		if err := step(); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return c, nil
}

// Version returns the release of nvidia.ko, such as "580.142".
func (c *Client) Version() string { return c.version }

// Close frees what the client has in the driver and closes the devices.
func (c *Client) Close() error {
	err := c.escape(escRMFree, "NV_ESC_RM_FREE", "", &freeParams{Root: c.root, Old: c.root}, 0)
	return errors.Join(err, c.kernel.Close())
}

func (c *Client) askVersion() error {
	v := versionParams{Cmd: versionQuery}
	if err := c.escape(escCheckVersion, "NV_ESC_CHECK_VERSION_STR", "", &v, 0); err != nil {
		return err
	}
	text, _, _ := bytes.Cut(v.Version[:], []byte{0})
	c.version = string(text)
	return nil
}

// listGPUs reads the table of GPUs that the driver has bound.
func (c *Client) listGPUs() error {
	var cards [maxGPUs]cardInfo
	if err := c.escape(escCardInfo, "NV_ESC_CARD_INFO", "", &cards, 0); err != nil {
		return err
	}
	for _, card := range cards {
		if card.Valid != 0 {
			c.gpus = append(c.gpus, GPU{
				BDF: fmt.Sprintf("%04x:%02x:%02x.%x", card.Domain, card.Bus, card.Slot, card.Function),
				ID:  card.GPUID, Minor: card.Minor, Vendor: card.Vendor, Device: card.Device, BAR1: card.FBSize,
			})
		}
	}
	slices.SortFunc(c.gpus, func(a, b GPU) int { return cmp.Compare(a.BDF, b.BDF) })
	return nil
}

func (c *Client) allocRoot() error {
	p := allocParams{Class: classRoot}
	if err := c.escape(escRMAlloc, "NV01_ROOT_CLIENT", "", &p, 0); err != nil {
		return err
	}
	c.root = p.New
	return nil
}

// GPUs returns all GPUs that the driver has bound, in the order of their BDFs,
// running or not. It leaves out those that the driver was told to exclude.
func (c *Client) GPUs() []GPU { return slices.Clone(c.gpus) }

// Attach starts a GPU, unless it runs already, and keeps it running until Close.
func (c *Client) Attach(g GPU) error {
	if err := c.kernel.Attach(g.Minor); err != nil {
		return fmt.Errorf("GPU %s: %w", g.BDF, err)
	}
	return nil
}

// Attached returns the IDs of the GPUs that are running.
func (c *Client) Attached() ([]uint32, error) {
	var ids attachedIDs
	if err := c.control(c.root, cmdAttachedIDs, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", "", &ids); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids.IDs[:], func(id uint32) bool { return id == invalidID }), nil
}

// P2P returns what two running GPUs can do with each other's memory; a is the one
// that initiates. The driver answers for the pair, whatever the order; only the
// peer ID is that of b on a.
func (c *Client) P2P(a, b GPU) (*Pair, error) {
	const op = "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2"
	var full p2pCapsEGM
	p := &full.P2P
	p.Count = 2
	p.IDs[0], p.IDs[1] = a.ID, b.ID
	both := a.BDF + " and " + b.BDF
	err := c.control(c.root, cmdP2PCaps, op, both, &full)
	if answered(err, InvalidParamStruct) {
		err = c.control(c.root, cmdP2PCaps, op, both, p)
	}
	if err != nil {
		return nil, err
	}
	return &Pair{A: a.BDF, B: b.BDF, Caps: p.Caps, Path: p.Caps.Path(), Status: p.Status, PeerID: p.PeerIDs[1]}, nil
}

// Memory returns the size of a running GPU's memory in bytes.
func (c *Client) Memory(g GPU) (uint64, error) {
	subdevice, err := c.subdevice(g)
	if err != nil {
		return 0, err
	}
	list := encode(fbInfo{Index: fbRAMSize})
	p := fbInfoParams{Count: 1}
	if err := c.control(subdevice, cmdFBInfo, "NV2080_CTRL_CMD_FB_GET_INFO", g.BDF, &p, list); err != nil {
		return 0, err
	}
	var info fbInfo
	if err := decode(list, &info); err != nil {
		return 0, err
	}
	return uint64(info.Data) << 10, nil
}

// StaticBAR1 tells whether a running GPU's memory is mapped in its BAR1 for good,
// without which BAR1 peer-to-peer does not work. It returns nil if the driver's
// release does not tell (before 565).
func (c *Client) StaticBAR1(g GPU) (*StaticBAR1, error) {
	subdevice, err := c.subdevice(g)
	if err != nil {
		return nil, err
	}
	const op = "NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO"
	var p staticBAR1
	err = c.control(subdevice, cmdStaticBAR1, op, g.BDF, &p)
	if answered(err, InvalidParamStruct) {
		var at0 staticBAR1At0
		err = c.control(subdevice, cmdStaticBAR1, op, g.BDF, &at0)
		p.Enabled, p.Size = at0.Enabled, at0.Size
	}
	switch {
	case answered(err, NotSupported, InvalidCommand):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &StaticBAR1{Enabled: p.Enabled != 0, Start: p.Start, Size: p.Size}, nil
}

// subdevice returns the handle through which questions about one GPU go.
func (c *Client) subdevice(g GPU) (uint32, error) {
	o, ok := c.objects[g.ID]
	if !ok {
		n := uint32(len(c.objects))
		o = object{handle: subdeviceHandle + n}
		o.err = c.allocSubdevice(g, deviceHandle+n, o.handle)
		c.objects[g.ID] = o
	}
	return o.handle, o.err
}

func (c *Client) allocSubdevice(g GPU, device, subdevice uint32) error {
	info := idInfo{ID: g.ID}
	if err := c.control(c.root, cmdIDInfo, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", g.BDF, &info); err != nil {
		return err
	}
	p := allocParams{Root: c.root, Parent: c.root, New: device, Class: classDevice}
	if err := c.alloc(p, "NV01_DEVICE_0", g.BDF, deviceParams{Device: info.DeviceInstance}); err != nil {
		return err
	}
	p = allocParams{Root: c.root, Parent: device, New: subdevice, Class: classSubdevice}
	return c.alloc(p, "NV20_SUBDEVICE_0", g.BDF, subdeviceParams{Subdevice: info.SubdeviceInstance})
}

func (c *Client) alloc(p allocParams, op, gpu string, params any) error {
	b := encode(params)
	p.ParamsSize = uint32(len(b))
	return c.escape(escRMAlloc, op, gpu, &p, allocPointer, buffer{Bytes: b})
}

// control asks the object a question whose parameters are params; list, if given,
// is what these point to.
func (c *Client) control(object, cmd uint32, op, gpu string, params any, list ...[]byte) error {
	b := buffer{Bytes: encode(params)}
	p := controlParams{Client: c.root, Object: object, Cmd: cmd, ParamsSize: uint32(len(b.Bytes))}
	further := []buffer{b}
	for _, l := range list {
		further[0].Next = fbListPointer
		further = append(further, buffer{Bytes: l})
	}
	if err := c.escape(escRMControl, op, gpu, &p, controlPointer, further...); err != nil {
		return err
	}
	return decode(b.Bytes, params)
}

// escape runs an ioctl with argument arg, a pointer to a structure that it reads
// back. It is an error if the resource manager's status is not OK.
func (c *Client) escape(number uint8, op, gpu string, arg any, next int, further ...buffer) error {
	b := encode(arg)
	err := c.kernel.Escape(call{Number: number, Buffers: append([]buffer{{Bytes: b, Next: next}}, further...)})
	if err != nil {
		return &Error{Op: op, GPU: gpu, Err: err}
	}
	if err := decode(b, arg); err != nil {
		return err
	}
	status := OK
	switch p := arg.(type) {
	case *allocParams:
		status = Status(p.Status)
	case *controlParams:
		status = Status(p.Status)
	case *freeParams:
		status = Status(p.Status)
	}
	if status != OK {
		return &Error{Op: op, GPU: gpu, Status: status}
	}
	return nil
}
