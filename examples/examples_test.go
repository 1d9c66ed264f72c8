package examples

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/farm/lab"
)

// decode reads documents of YAML, each into what into returns, and refuses keys that
// this does not have.
func decode(t *testing.T, file string, into func() any) (docs []any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	for {
		v := into()
		err := d.Decode(v)
		if errors.Is(err, io.EOF) {
			return docs
		}
		require.NoError(t, err, file)
		docs = append(docs, v)
	}
}

func TestLab(t *testing.T) {
	l, err := lab.Load("lab.yaml")
	require.NoError(t, err)
	var ways []string
	for _, n := range l.Nodes {
		switch p := n.Power; {
		case p == nil:
			ways = append(ways, "none")
		case p.Redfish != nil:
			ways = append(ways, "redfish")
		case p.IPMI != nil:
			ways = append(ways, "ipmi")
		case p.WOL != nil:
			ways = append(ways, "wol")
		default:
			ways = append(ways, "command")
		}
	}
	assert.Subset(t, ways, []string{"none", "redfish", "ipmi", "wol", "command"})
}

// parameters complains about kernel parameters that the image does not know.
func parameters(t *testing.T, line string) {
	t.Helper()
	_, warnings := params.Parse(line)
	assert.Empty(t, warnings, line)
	assert.Contains(t, line, "p2p.")
}

type (
	lavaTime map[string]int
	lavaURL  struct {
		URL            string
		Type           string `yaml:",omitempty"`
		InstallModules *bool  `yaml:"install_modules"`
		InstallOverlay *bool  `yaml:"install_overlay"`
	}
	lavaJob struct {
		JobName    string `yaml:"job_name"`
		DeviceType string `yaml:"device_type"`
		Priority   string
		Visibility string
		Timeouts   map[string]lavaTime
		Actions    []struct {
			Deploy *struct {
				To              string
				Timeout         lavaTime
				Kernel, Ramdisk lavaURL
			}
			Boot *struct {
				Method   string
				Timeout  lavaTime
				Commands []string
			}
			Test *struct {
				Timeout  lavaTime
				Monitors []struct {
					Name, Start, End, Pattern string
					Fixupdict                 map[string]string
				}
			}
		}
	}
)

// TestLAVA checks the structure after lava_common/schemas of LAVA 2026.08, which
// itself accepts the job; that the monitors read what the image writes is a test of
// the image, p2pinit/node.
func TestLAVA(t *testing.T) {
	docs := decode(t, "lava/job.yaml", func() any { return new(lavaJob) })
	require.Len(t, docs, 1)
	job := docs[0].(*lavaJob)
	require.Len(t, job.Actions, 3)
	deploy, boot, test := job.Actions[0].Deploy, job.Actions[1].Boot, job.Actions[2].Test
	assert.Equal(t, "tftp", deploy.To)
	// Without both, LAVA unpacks the image and packs it again.
	require.NotNil(t, deploy.Ramdisk.InstallModules)
	require.NotNil(t, deploy.Ramdisk.InstallOverlay)
	assert.False(t, *deploy.Ramdisk.InstallModules || *deploy.Ramdisk.InstallOverlay)

	assert.Equal(t, "ipxe", boot.Method)
	commands := strings.Join(boot.Commands, "\n")
	for _, place := range []string{"{SERVER_IP}/{KERNEL}", "{SERVER_IP}/{RAMDISK}"} {
		assert.Contains(t, commands, place)
	}
	parameters(t, boot.Commands[1])
	assert.Contains(t, commands, "p2p.signals=lava")

	for _, m := range test.Monitors {
		assert.Regexp(t, `^[-_a-zA-Z0-9.]+$`, m.Name)
		for _, text := range []string{m.Start, m.End} {
			_, err := regexp.Compile(text)
			require.NoError(t, err)
		}
		pattern, err := regexp.Compile(m.Pattern) // Python's syntax is the same for all that is in it
		require.NoError(t, err)
		assert.Subset(t, pattern.SubexpNames(), []string{"test_case_id", "result"})
		for _, result := range m.Fixupdict {
			assert.Contains(t, []string{"pass", "fail", "skip", "unknown"}, result)
		}
	}
	minutes := func(limit lavaTime) int { return limit["minutes"] + 60*limit["hours"] }
	for _, limit := range []lavaTime{deploy.Timeout, boot.Timeout, test.Timeout, job.Timeouts["action"]} {
		assert.LessOrEqual(t, minutes(limit), minutes(job.Timeouts["job"]), "LAVA refuses a limit above that of the job")
	}
}

type (
	meta struct {
		Name         string
		GenerateName string `yaml:"generateName"`
		Namespace    string
	}
	reference struct {
		APIGroup              string `yaml:"apiGroup"`
		Kind, Name, Namespace string
	}
	hardware struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			BMCRef     reference `yaml:"bmcRef"`
			Interfaces []struct {
				DHCP struct {
					Arch, Hostname, MAC string
					UEFI                bool
					LeaseTime           int `yaml:"lease_time"`
					IP                  struct{ Address, Netmask, Gateway string }
				}
				Netboot struct {
					AllowPXE      bool `yaml:"allowPXE"`
					AllowWorkflow bool `yaml:"allowWorkflow"`
					OSIE          struct {
						BaseURL        string `yaml:"baseURL"`
						Kernel, Initrd string
						KernelParams   []string `yaml:"kernelParams"`
					}
					IPXE struct{ Contents string }
				}
			}
		}
	}
	template struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct{ Data string }
	}
	// workflowData is what tink's controller reads from the data of a template.
	workflowData struct {
		Version, Name string
		GlobalTimeout int `yaml:"global_timeout"`
		Tasks         []struct {
			Name, Worker string
			Actions      []struct {
				Name, Image string
				Timeout     int64
				Command     []string
			}
		}
	}
	workflow struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			TemplateRef string            `yaml:"templateRef"`
			HardwareRef string            `yaml:"hardwareRef"`
			HardwareMap map[string]string `yaml:"hardwareMap"`
			BootOptions struct {
				BootMode           string `yaml:"bootMode"`
				ToggleAllowNetboot bool   `yaml:"toggleAllowNetboot"`
			} `yaml:"bootOptions"`
		}
	}
)

func TestTinkerbell(t *testing.T) {
	for _, file := range []string{"hardware", "hardware-farm", "hardware-check"} {
		h := decode(t, "tinkerbell/"+file+".yaml", func() any { return new(hardware) })[0].(*hardware)
		assert.Equal(t, "tinkerbell.org/v1alpha1 Hardware", h.APIVersion+" "+h.Kind)
		boot := h.Spec.Interfaces[0].Netboot
		if file == "hardware-farm" {
			assert.True(t, strings.HasPrefix(boot.IPXE.Contents, "#!ipxe\n"))
			continue
		}
		// Behind Smee's intel_iommu=on.
		assert.Contains(t, boot.OSIE.KernelParams, "intel_iommu=off")
		if file == "hardware" {
			parameters(t, strings.Join(boot.OSIE.KernelParams, " "))
		}
	}
	tpl := decode(t, "tinkerbell/template.yaml", func() any { return new(template) })[0].(*template)
	var data workflowData
	d := yaml.NewDecoder(strings.NewReader(tpl.Spec.Data))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&data))
	assert.Equal(t, []string{"check", "--verbose"}, data.Tasks[0].Actions[0].Command)

	w := decode(t, "tinkerbell/workflow.yaml", func() any { return new(workflow) })[0].(*workflow)
	assert.Equal(t, tpl.Metadata.Name, w.Spec.TemplateRef)
	check := decode(t, "tinkerbell/hardware-check.yaml", func() any { return new(hardware) })[0].(*hardware)
	assert.Equal(t, check.Metadata.Name, w.Spec.HardwareRef)
	assert.Equal(t, check.Spec.Interfaces[0].DHCP.MAC, w.Spec.HardwareMap["device_1"])
	assert.Contains(t, data.Tasks[0].Worker, "device_1")
}

// TestTinkerbellSchemas checks the resources against the definitions of Tinkerbell
// itself: the directory crd/bases/v1alpha1 of its repository.
func TestTinkerbellSchemas(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_TINKERBELL_CRDS")
	if dir == "" {
		t.Skip("MKP2PIMG_TINKERBELL_CRDS does not name the directory crd/bases/v1alpha1 of github.com/tinkerbell/tinkerbell")
	}
	schemas := definitions(t, dir)
	files, err := filepath.Glob("tinkerbell/*.yaml")
	require.NoError(t, err)
	checked := 0
	for _, file := range files {
		for _, doc := range decode(t, file, func() any { return new(map[string]any) }) {
			resource := *doc.(*map[string]any)
			if resource["apiVersion"] == "v1" {
				continue // Kubernetes' own
			}
			kind := fmt.Sprint(resource["kind"])
			require.Contains(t, schemas, kind)
			assert.NoError(t, schemas[kind].Validate(plain(resource)), file)
			checked++
		}
	}
	assert.Equal(t, 7, checked)
}

// definitions compiles the schemas of custom resources, by kind. What they do not
// name is refused, as "kubectl apply" does.
func definitions(t *testing.T, dir string) map[string]*jsonschema.Schema {
	t.Helper()
	schemas := map[string]*jsonschema.Schema{}
	files, err := fs.Glob(os.DirFS(dir), "*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPI map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &crd))
		schema := crd.Spec.Versions[0].Schema.OpenAPI
		closeObjects(schema)
		delete(schema["properties"].(map[string]any), "metadata")
		schema["additionalProperties"] = true
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource(file, plain(schema)))
		schemas[crd.Spec.Names.Kind], err = c.Compile(file)
		require.NoError(t, err)
	}
	return schemas
}

// closeObjects forbids properties that are not named.
func closeObjects(schema map[string]any) {
	properties, ok := schema["properties"].(map[string]any)
	if ok && schema["x-kubernetes-preserve-unknown-fields"] == nil {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		closeObjects(p.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if sub, ok := schema[key].(map[string]any); ok {
			closeObjects(sub)
		}
	}
}

// plain makes values of YAML those that the package of JSON schemas knows.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plain(value)
		}
	case int:
		return float64(v)
	}
	return v
}

// maasFields are the metadata that MAAS documents for its scripts.
type maasFields struct {
	Name, Title, Description string
	ScriptType               string `yaml:"script_type"`
	HardwareType             string `yaml:"hardware_type"`
	Tags                     []string
	Parallel, Timeout        string
	Destructive              bool
	Packages                 map[string]string
}

func TestMAAS(t *testing.T) {
	const file = "maas/p2p-check.sh"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	block := regexp.MustCompile(`(?s)\n# --- Start MAAS 1\.0 script metadata ---\n(.*?)# --- End MAAS 1\.0 script metadata ---\n`).FindSubmatch(text)
	require.NotNil(t, block)
	d := yaml.NewDecoder(strings.NewReader(regexp.MustCompile(`(?m)^# `).ReplaceAllString(string(block[1]), "")))
	d.KnownFields(true)
	var m maasFields
	require.NoError(t, d.Decode(&m))
	assert.Equal(t, "p2p-check", m.Name)
	assert.Contains(t, []string{"test", "testing"}, m.ScriptType)
	assert.Contains(t, []string{"node", "cpu", "memory", "storage", "network", "gpu"}, m.HardwareType)
	assert.Contains(t, []string{"disabled", "instance", "any"}, m.Parallel)
	assert.Regexp(t, `^\d\d:\d\d:\d\d$`, m.Timeout)

	if lint, err := exec.LookPath("shellcheck"); err == nil {
		out, err := exec.CommandContext(t.Context(), lint, file).CombinedOutput()
		assert.NoError(t, err, string(out))
	}
}

// The script is run with something in place of sudo and mkp2pimg.
func TestMAASScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	tests := []struct {
		says   string
		code   int
		status string
		ok     bool
	}{
		{"P2P READY: every check passed", 0, "passed", true},
		{"P2P DEGRADED: link of 0000:01:00.0", 1, "degraded", true},
		{"P2P BLOCKED: ACS", 2, "failed", false},
		{"P2P UNKNOWN: nobody knows", 3, "failed", false},
		{"P2P NO GPU: no GPU on the bus", 3, "skipped", true},
		{"mkp2pimg: a mistake in this program", 70, "failed", false},
	}
	for _, tt := range tests {
		t.Run(tt.says, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
			}
			write("bin/sudo", "#!/bin/sh\n[ \"$1\" = -n ] || exit 99\nshift\nexec \"$@\"\n")
			write("download/mkp2pimg", fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'check --verbose' ] || exit 98\necho '%s'\nexit %d\n", tt.says, tt.code))
			script, err := filepath.Abs("maas/p2p-check.sh")
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), bash, script)
			result := filepath.Join(dir, "result.yaml")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "DOWNLOAD_PATH="+filepath.Join(dir, "download"), "RESULT_PATH="+result)
			out, err := cmd.CombinedOutput()
			assert.Equal(t, tt.ok, err == nil, "%v: %s", err, out)
			assert.Contains(t, string(out), tt.says)
			got, err := os.ReadFile(result)
			require.NoError(t, err)
			assert.Equal(t, "status: "+tt.status+"\n", string(got))
		})
	}
}

func TestCron(t *testing.T) {
	text, err := os.ReadFile("cron/mkp2pimg-farm")
	require.NoError(t, err)
	var jobs []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !regexp.MustCompile(`^[A-Z]+=`).MatchString(line) {
			jobs = append(jobs, line)
		}
	}
	require.Len(t, jobs, 1)
	// Five fields of time, a user, a command; % would end the command.
	assert.Regexp(t, `^(\S+ ){5}mkp2pimg flock -n \S+ mkp2pimg farm run [^%]*$`, jobs[0])
	assert.True(t, strings.HasSuffix(string(text), "\n"), "cron ignores a last line without an end")
}

// TestSystemd asks systemd itself, with a program that exists.
func TestSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(err)
	}
	program, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, name := range []string{"mkp2pimg-farm.service", "mkp2pimg-farm.timer"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		require.NoError(t, err)
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/mkp2pimg"), []byte(program))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
		args = append(args, filepath.Join(dir, name))
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	assert.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		assert.NotContains(t, line, "mkp2pimg-farm", "systemd has something to say about the units")
	}
}

type (
	cronJob struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			Schedule                string
			TimeZone                string `yaml:"timeZone"`
			ConcurrencyPolicy       string `yaml:"concurrencyPolicy"`
			StartingDeadlineSeconds int    `yaml:"startingDeadlineSeconds"`
			Successful              int    `yaml:"successfulJobsHistoryLimit"`
			Failed                  int    `yaml:"failedJobsHistoryLimit"`
			JobTemplate             struct {
				Spec struct {
					BackoffLimit  int `yaml:"backoffLimit"`
					FailurePolicy struct {
						Rules []struct {
							Action      string
							OnExitCodes struct {
								ContainerName string `yaml:"containerName"`
								Operator      string
								Values        []int
							} `yaml:"onExitCodes"`
						}
					} `yaml:"podFailurePolicy"`
					Template struct{ Spec podSpec }
				}
			} `yaml:"jobTemplate"`
		}
	}
	podSpec struct {
		RestartPolicy   string         `yaml:"restartPolicy"`
		Grace           int            `yaml:"terminationGracePeriodSeconds"`
		Automount       bool           `yaml:"automountServiceAccountToken"`
		SecurityContext map[string]any `yaml:"securityContext"`
		Containers      []struct {
			Name, Image     string
			Args            []string
			Resources       map[string]map[string]string
			SecurityContext map[string]any `yaml:"securityContext"`
			VolumeMounts    []struct {
				Name      string
				MountPath string `yaml:"mountPath"`
				SubPath   string `yaml:"subPath"`
			} `yaml:"volumeMounts"`
		}
		Volumes []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
			Secret    struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
			EmptyDir map[string]any `yaml:"emptyDir"`
		}
	}
)

func TestKubernetes(t *testing.T) {
	docs := decode(t, "kubernetes/cronjob.yaml", func() any { return new(cronJob) })
	require.Len(t, docs, 1)
	c := docs[0].(*cronJob)
	assert.Equal(t, "batch/v1 CronJob", c.APIVersion+" "+c.Kind)
	job := c.Spec.JobTemplate.Spec
	pod := job.Template.Spec
	// podFailurePolicy takes no other one.
	assert.Equal(t, "Never", pod.RestartPolicy)
	rule := job.FailurePolicy.Rules[0]
	assert.Equal(t, pod.Containers[0].Name, rule.OnExitCodes.ContainerName)
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		assert.True(t, volumes[m.Name], "volume %s is mounted and not there", m.Name)
	}
}
