package images

// DefaultCommandLine are the kernel parameters of an image whose build names no
// others: messages on screen and first serial port, a reboot half a minute
// after a panic, and all stages of the init on the edited driver, whose result
// stays on the screen.
var DefaultCommandLine = []string{
	"console=ttyS0,115200n8", "console=tty0", "panic=30",
	"p2p.plan=full", "p2p.driver=p2p", "p2p.after=hold",
}
