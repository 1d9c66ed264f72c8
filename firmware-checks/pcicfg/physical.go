package pcicfg

// Physical Layer Extended Capabilities of 16, 32 and 64 GT/s (PCIe 6.0 §7.7.5 to
// §7.7.7), which have the bits read here in common, and Data Link Feature
// (§7.7.4).
const (
	physicalStatus = 0x0c
	physicalSize   = 0x10

	featureCap      = 0x04
	featureStatus   = 0x08
	featureSize     = 0x0c
	featureScaled   = 1 << 0  // in both registers
	featureExchange = 1 << 31 // Capabilities: the exchange is enabled
	featureValid    = 1 << 31 // Status: the far end told its features
)

// PhysicalLayer is the decoded capability of one of the speeds from 16 GT/s.
type PhysicalLayer struct {
	Offset       int          `json:"offset"`
	Equalization Equalization `json:"equalization"`
}

// DataLinkFeature is the decoded Data Link Feature capability.
type DataLinkFeature struct {
	Offset int `json:"offset"`
	// Exchange says that the port tells its features to the far end.
	Exchange bool `json:"exchange"`
	// ScaledFlowControl is needed for full speed from 16 GT/s on links of long
	// delay; RemoteScaledFlowControl is nil when the far end told nothing.
	ScaledFlowControl       bool  `json:"scaled_flow_control"`
	RemoteScaledFlowControl *bool `json:"remote_scaled_flow_control,omitempty"`
}

func (d *decoder) physical(name string, off int, into **PhysicalLayer) {
	if *into != nil || !d.capture(name, off, physicalSize) {
		return
	}
	*into = &PhysicalLayer{Offset: off, Equalization: equalization(d.u32(off + physicalStatus))}
}

func (d *decoder) dataLinkFeature(off int) {
	if d.cfg.DataLinkFeature != nil || !d.capture("Data Link Feature", off, featureSize) {
		return
	}
	local, remote := d.u32(off+featureCap), d.u32(off+featureStatus)
	f := &DataLinkFeature{
		Offset:            off,
		Exchange:          local&featureExchange != 0,
		ScaledFlowControl: local&featureScaled != 0,
	}
	if remote&featureValid != 0 {
		scaled := remote&featureScaled != 0
		f.RemoteScaledFlowControl = &scaled
	}
	d.cfg.DataLinkFeature = f
}
