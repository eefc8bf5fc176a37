package osimage

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
)

// Labels of an image that hosts and refit read.
const (
	// LabelBootc and LabelBootable mark an image that a host can boot; one is enough.
	LabelBootc    = "containers.bootc"
	LabelBootable = "ostree.bootable"
	// LabelKubelet is the version of the kubelet in the image, where no database of
	// packages has it.
	LabelKubelet = "dev.refit.kubelet"
	// LabelHostProvides lists parts, with commas, that hosts have outside of the image:
	// on /var, by a payload, or by a kernel that needs no initramfs.
	LabelHostProvides = "dev.refit.host-provides"
)

// Parts that LabelHostProvides may name.
const (
	PartKubelet   = "kubelet"
	PartRuntime   = "runtime"
	PartAgent     = "refit-agent"
	PartInit      = "systemd"
	PartInitramfs = "initramfs"
	// PartBound are the images that the image binds: hosts have them, or can pull them.
	PartBound = "bound-images"
)

// Kernel is a directory of /usr/lib/modules with a kernel.
type Kernel struct {
	Version string `json:"version"`
	// Initramfs is true if it is next to the kernel.
	Initramfs bool `json:"initramfs,omitempty"`
	// Size of both in bytes, as they are copied to /boot; 0 if unknown.
	Size int64 `json:"size,omitempty"`
}

// ImageFacts is what an image of one platform has, as its configuration and the tables of its
// layers say.
type ImageFacts struct {
	// Platform as os/architecture or os/architecture/variant.
	Platform string `json:"platform"`
	// OS is its name and version from os-release, empty if unknown.
	OS string `json:"os,omitempty"`
	// Bootable is true if a label says so.
	Bootable bool     `json:"bootable,omitempty"`
	Kernels  []Kernel `json:"kernels,omitempty"`
	// Kubelet is the program that runs pods, by its path; KubeletVersion is empty if no
	// label and no database of packages has it.
	Kubelet        string `json:"kubelet,omitempty"`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// Supervised is true if that program brings its own container runtime.
	Supervised bool `json:"supervised,omitempty"`
	// Runtime and Agent are programs by their path.
	Runtime string `json:"runtime,omitempty"`
	Agent   string `json:"agent,omitempty"`
	// Systemd is true if it is there; Init is the target of a /sbin/init that starts another
	// program.
	Systemd bool   `json:"systemd,omitempty"`
	Init    string `json:"init,omitempty"`
	// Units of the kubelet, the runtime and the agent that the image has, sorted, and those
	// of them that it masks.
	Units  []string `json:"units,omitempty"`
	Masked []string `json:"masked,omitempty"`
	// EtcTransient is true if the host forgets changes of /etc at each boot.
	EtcTransient bool `json:"etcTransient,omitempty"`
	// LocalOutside is true if /usr/local is outside of the image.
	LocalOutside bool `json:"localOutside,omitempty"`
	// WithoutSELinux is true if the image has no SELinux policy, or does not switch SELinux on.
	WithoutSELinux bool `json:"withoutSELinux,omitempty"`
	// Bound are the units of containers whose images the image binds: bootc pulls them from
	// their registries while it stages.
	Bound []string `json:"bound,omitempty"`
	// Extensions are the names under which it is an extension for systemd-sysext.
	Extensions []string `json:"extensions,omitempty"`
	// Provided are the parts that hosts have outside of the image.
	Provided []string `json:"provided,omitempty"`
	// Packed and Unpacked are the bytes of its layers.
	Packed   int64 `json:"packed"`
	Unpacked int64 `json:"unpacked"`
	// Read bytes of layers.
	Read int64 `json:"read"`
	// Problem is why the image cannot be read; nothing else counts then.
	Problem string `json:"problem,omitempty"`
}

func (f *ImageFacts) provides(part string) bool { return slices.Contains(f.Provided, part) }

// ReadLabels adds what labels say.
func (f *ImageFacts) ReadLabels(labels map[string]string) {
	_, bootable := labels[LabelBootable]
	f.Bootable = labels[LabelBootc] == "1" || bootable && labels[LabelBootable] != "false" && labels[LabelBootable] != "0"
	if v := labels[LabelKubelet]; v != "" {
		f.KubeletVersion = v
	}
	known := []string{PartKubelet, PartRuntime, PartAgent, PartInit, PartInitramfs, PartBound}
	for part := range strings.SplitSeq(labels[LabelHostProvides], ",") {
		if part = strings.TrimSpace(part); slices.Contains(known, part) && !f.provides(part) {
			f.Provided = append(f.Provided, part)
		}
	}
	slices.Sort(f.Provided)
}

// Places of programs in images, without the leading slash.
const (
	AgentProgram = "refit-agent"
	AgentUnit    = "refit-agent.service"
)

// ProgramDirs are where programs are looked for.
func ProgramDirs() []string {
	return []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/libexec", "usr/libexec/kubernetes", "opt/bin"}
}

// RuntimePrograms are container runtimes with a unit of their own.
func RuntimePrograms() []string { return []string{"containerd", "crio"} }

// KubeletPrograms are the programs that run pods, by name, with the units that start them.
func KubeletPrograms() map[string][]string {
	out := map[string][]string{}
	for _, r := range distribution.Rows() {
		for _, at := range r.Programs {
			name := at[strings.LastIndex(at, "/")+1:]
			for _, unit := range slices.Concat(r.Servers, r.Agents) {
				if !slices.Contains(out[name], unit) {
					out[name] = append(out[name], unit)
				}
			}
		}
	}
	return out
}

// IsSupervisor reports whether a program that runs pods brings its own container runtime.
func IsSupervisor(program string) bool {
	return slices.ContainsFunc(distribution.Rows(), func(r distribution.Row) bool {
		return r.Supervised && slices.ContainsFunc(r.Programs, func(at string) bool { return strings.HasSuffix(at, "/"+program) })
	})
}

// EtcTransient reports whether the text of a prepare-root.conf makes /etc transient: the host forgets
// changes of it at each boot.
func EtcTransient(conf string) bool {
	section := ""
	for line := range strings.Lines(conf) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		if section == "etc" && strings.TrimSpace(key) == "transient" && slices.Contains([]string{"true", "yes", "1"}, strings.TrimSpace(value)) {
			return true
		}
	}
	return false
}
