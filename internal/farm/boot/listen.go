package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/farm/lab"
)

// Ports are those that a [Listener] listens at; zero stands for the usual one.
type Ports struct{ DHCP, PXE, TFTP int }

// Listener has the sockets of DHCP and TFTP.
type Listener struct {
	s     *Service
	dhcp  *DHCP
	conns map[int]net.PacketConn // of DHCP, by the port that its packets are meant for
	tftp  net.PacketConn         // nil: none
}

// Listen opens the sockets that lab.yaml asks for. With its mode off there are
// none. It changes nothing until Serve runs.
func (s *Service) Listen(p Ports) (_ *Listener, err error) {
	st := s.state.Load()
	l := &Listener{s: s, conns: map[int]net.PacketConn{}}
	if st.DHCP.Mode == lab.Off {
		return l, nil
	}
	prefix, err := interfaceAddress(st.DHCP.Interface)
	if err != nil {
		return nil, fmt.Errorf("%s: dhcp: %w", st.Path, err)
	}
	l.dhcp = &DHCP{
		Mode: st.DHCP.Mode, Server: prefix.Addr(), TFTP: st.DHCP.TFTP, Boots: s.boots,
		Script: st.Server + "/" + firstName, Loader: st.Server + "/loaders/" + pxe.EFI,
		Mask: net.CIDRMask(prefix.Bits(), 32), Lease: st.DHCP.Lease, Router: st.DHCP.Router, DNS: st.DHCP.DNS,
	}
	if st.DHCP.Mode == lab.Full {
		if net := prefix.Masked(); !net.Contains(st.DHCP.First) || !net.Contains(st.DHCP.Last) {
			return nil, fmt.Errorf("%s: dhcp: range %s-%s is not in %s, the net of interface %s", st.Path, st.DHCP.First, st.DHCP.Last, net, st.DHCP.Interface)
		}
		leases, err := OpenLeases(st.DHCP.LeaseFile, st.DHCP.First, st.DHCP.Last, prefix.Addr())
		if err != nil {
			return nil, err
		}
		leases.Reserve(macs(st.Lab))
		l.dhcp.Leases = leases
		s.mu.Lock()
		s.leases = leases
		s.mu.Unlock()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	for port, at := range map[int]int{dhcpPort: p.DHCP, pxePort: p.PXE} {
		// To the interface, not to its address: clients broadcast.
		if l.conns[port], err = listenUDP(st.DHCP.Interface, netip.IPv4Unspecified(), cmp.Or(at, port)); err != nil {
			return nil, err
		}
	}
	if st.DHCP.TFTP {
		if l.tftp, err = listenUDP(st.DHCP.Interface, prefix.Addr(), cmp.Or(p.TFTP, tftpPort)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

const tftpPort = 69

// Serve answers until the context ends.
func (l *Listener) Serve(ctx context.Context) error {
	if l.dhcp == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for port, conn := range l.conns {
		g.Go(func() error { return l.packets(ctx, conn, port) })
	}
	if l.tftp != nil {
		files := newTFTP(
			func(name string) (*os.File, error) { return l.s.state.Load().loaders.open(name) },
			l.s.log,
		)
		context.AfterFunc(ctx, files.Shutdown) // on the side: it waits for transfers
		g.Go(func() error { return files.Serve(l.tftp) })
	}
	if l.dhcp.Leases != nil {
		g.Go(func() error { return l.keep(ctx) })
	}
	context.AfterFunc(ctx, func() {
		if err := l.closeDHCP(); err != nil {
			l.s.log.Warn("dhcp", "error", err)
		}
	})
	return g.Wait()
}

// Close closes the sockets of a listener that does not serve.
func (l *Listener) Close() error {
	err := l.closeDHCP()
	if l.tftp != nil {
		err = errors.Join(err, l.tftp.Close())
	}
	return err
}

func (l *Listener) closeDHCP() (err error) {
	for _, conn := range l.conns {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	return err
}

// keep writes leases down as they change.
func (l *Listener) keep(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.dhcp.Leases.Save()
		case <-tick.C:
			if err := l.dhcp.Leases.Save(); err != nil {
				l.s.log.Error("dhcp", "error", err)
			}
		}
	}
}

// packets answers what comes to a socket.
func (l *Listener) packets(ctx context.Context, conn net.PacketConn, port int) error {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buf)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("dhcp, port %d: %w", port, err)
		}
		if err != nil {
			continue // such as an ICMP error about an earlier answer
		}
		now := l.s.now()
		answer, client := l.decide(now, buf[:n], port)
		if answer == nil {
			continue
		}
		if answer.To != nil {
			from = answer.To
		}
		if _, err := conn.WriteTo(answer.Packet.ToBytes(), from); err != nil {
			l.s.log.Warn("dhcp", "to", from, "error", err)
			continue
		}
		l.s.log.Info("dhcp", "mac", client.MAC, "answer", answer.Packet.MessageType(), "address", answer.Packet.YourIPAddr, "file", fileOf(answer.Packet))
	}
}

// decide is what the bytes of a packet are answered.
func (l *Listener) decide(now time.Time, data []byte, port int) (*Answer, Client) {
	m, err := dhcpv4.FromBytes(data)
	if err != nil {
		return nil, Client{}
	}
	c := ReadClient(m)
	if c.MAC == "" || !l.s.packets.Allow(now, c.MAC) {
		return nil, c
	}
	if c.Kind == Unserved {
		l.s.log.Warn("dhcp", "mac", c.MAC, "error", fmt.Sprintf("its firmware (%s, %s) can't boot the image", m.ClassIdentifier(), c.Arch))
	}
	return l.dhcp.Answer(now, m, port), c
}

func fileOf(m *dhcpv4.DHCPv4) string { return cmp.Or(m.BootFileName, m.BootFileNameOption()) }

// interfaceAddress is the first IPv4 address of an interface, with its net.
func interfaceAddress(name string) (netip.Prefix, error) {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		var names []string
		all, _ := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
		}
		return netip.Prefix{}, fmt.Errorf("there is no network interface %q: this machine has %s", name, strings.Join(names, ", "))
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("interface %s: %w", name, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("interface %s has no IPv4 address: give it one (ip address add 10.0.0.1/24 dev %s)", name, name)
}

// listenUDP opens a socket for packets of one interface.
func listenUDP(ifc string, addr netip.Addr, port int) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), ifc) })
		return cmp.Or(err, bound)
	}}
	conn, err := config.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(addr, uint16(port)).String())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("UDP port %d: %w: another program has it (ss -ulpn 'sport = :%d' names it); stop it, or set dhcp mode to off and let it say what to boot", port, err, port)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("UDP port %d: %w: run as root, allow it (setcap cap_net_bind_service,cap_net_raw+ep on the program, or the systemd unit in docs/farm.md), or set dhcp mode to off", port, err)
	}
	return conn, err
}
