package boot

import (
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"mkp2pimg/images"
)

// scripts are those that iPXE runs. All that is put into them went through safe.
var scripts = template.Must(template.New("").Funcs(template.FuncMap{"safe": safe}).Parse(`
{{- define "first" -}}
#!ipxe
# Asks for the script of this machine, for half a minute if need be.
set tries:int32 0
:ask
chain --replace --autofree {{safe .}}/v1/ipxe?mac=${mac:hexhyp}&uuid=${uuid}&serial=${serial:uristring} || inc tries
iseq ${tries} 6 && goto disk ||
sleep 5
goto ask
:disk
echo No answer from {{safe .}}: starting from the disk
{{template "local"}}
{{- end}}

{{- define "local" -}}
sleep 2
iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||
exit 1
{{end}}

{{- define "disk" -}}
#!ipxe
echo {{safe .Node}} starts from its disk: {{safe .Why}}
{{template "local"}}
{{- end}}

{{- define "image" -}}
#!ipxe
echo {{safe .Node}} starts image {{safe .Image}}, {{safe .Why}}: run {{safe .Run}}
kernel {{safe .Base}}/{{safe .Kernel}} || goto failed
{{- range .Initrds}}
initrd {{safe $.Base}}/{{safe .}} || goto failed
{{- end}}
imgargs {{safe .Kernel}}{{range .Initrds}} initrd={{safe .}}{{end}}{{range .Args}} {{safe .}}{{end}}
boot || goto failed
:failed
echo The image could not be loaded
imgfree
sleep 10
chain --replace --autofree {{safe .First}} || exit 1
{{end}}`))

// unsafe are the bytes that no value in a script may have: line ends, and what
// iPXE expands, separates commands by or takes for a comment (src/core/exec.c).
var unsafe = regexp.MustCompile(`[^ -~]|[$|#"'\\]|&&`)

// safe lets a value into a script.
func safe(v string) (string, error) {
	if unsafe.MatchString(v) {
		return "", fmt.Errorf("%q can't be in an iPXE script", v)
	}
	return v, nil
}

// starting is what the script of a machine that boots an image is made of.
type starting struct {
	Node, Image, Why, Run string
	Base                  string // URL of the files
	Kernel                string
	Initrds               []string
	Args                  []string // kernel parameters
	First                 string   // URL of the first script
}

// maxCommandLine is the longest command line of Linux on x86, less its end
// (COMMAND_LINE_SIZE, arch/x86/include/asm/setup.h).
const maxCommandLine = 2047

// script renders it.
func (s *starting) script() ([]byte, error) {
	n := 0
	for _, arg := range s.arguments() {
		if arg == "" || strings.ContainsAny(arg, " \t") {
			return nil, fmt.Errorf("kernel parameter %q: it is empty or has spaces", arg)
		}
		n += len(arg) + 1
	}
	if n > maxCommandLine {
		return nil, fmt.Errorf("the kernel parameters of %s have %d bytes, Linux takes %d", s.Node, n, maxCommandLine)
	}
	return render("image", s)
}

// arguments are the kernel's: those that lead EFI to the initramfs come first.
func (s *starting) arguments() []string {
	var all []string
	for _, name := range s.Initrds {
		all = append(all, "initrd="+name)
	}
	return append(all, s.Args...)
}

func diskScript(node, why string) ([]byte, error) {
	return render("disk", struct{ Node, Why string }{node, why})
}

// firstScript is the one that DHCP names, of a server with a URL.
func firstScript(server string) ([]byte, error) { return render("first", server) }

func render(name string, data any) ([]byte, error) {
	var b strings.Builder
	err := scripts.ExecuteTemplate(&b, name, data)
	return []byte(b.String()), err
}

// firstName is the name of the first script on the server.
const firstName = images.ScriptName
