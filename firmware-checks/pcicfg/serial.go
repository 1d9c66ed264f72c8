package pcicfg

// serialSize is the Device Serial Number Extended Capability: a header and the
// 64-bit EUI-64.
const serialSize = 12

// BlankSerial overwrites the device's serial number in a dump of configuration
// space with zeros, so that the dump can be shared.
func BlankSerial(raw []byte) {
	cfg, err := Decode(raw)
	if err != nil {
		return // nothing in it can be found, by anybody
	}
	for _, c := range cfg.ExtendedCapabilities {
		if c.ID == ExtCapSerial && c.Offset+serialSize <= len(raw) {
			clear(raw[c.Offset+4 : c.Offset+serialSize])
		}
	}
}
