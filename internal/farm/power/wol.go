package power

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"
)

// wol switches a machine on with a magic packet.
type wol struct {
	mac       string
	broadcast string // host:port
}

// Packets get lost, and some network ports sleep through the first one.
const (
	wolPackets = 3
	wolPause   = 200 * time.Millisecond
)

// wolNote is what a packet can't make sure.
const wolNote = "Wake-on-LAN does no more than switch a machine on: it has to be off before, and to start from the network by itself"

// MagicPacket is what wakes the machine with a MAC address: six bytes 0xff, then
// the address sixteen times (AMD, Magic Packet Technology, publication 20213).
func MagicPacket(mac net.HardwareAddr) []byte {
	return append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16)...)
}

func (w wol) NetworkBoot(ctx context.Context) (string, error) {
	fail := func(err error) (string, error) {
		return "", &Error{
			Target: "Wake-on-LAN of " + w.mac, Request: "packet to " + w.broadcast, Err: err,
			Hint: "give the broadcast address of the node's network as broadcast, and run this on a machine of that network",
		}
	}
	mac, err := net.ParseMAC(w.mac)
	if err != nil {
		return fail(err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp4", w.broadcast) // net allows broadcasts on it
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	for i := range wolPackets {
		if i > 0 {
			if err := pause(ctx, wolPause); err != nil {
				return fail(err)
			}
		}
		if _, err := conn.Write(MagicPacket(mac)); err != nil {
			return fail(fmt.Errorf("packet %d of %d: %w", i+1, wolPackets, err))
		}
	}
	return wolNote, nil
}
