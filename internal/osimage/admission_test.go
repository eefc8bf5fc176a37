package osimage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func good(platform string) ImageFacts {
	return ImageFacts{Platform: platform, Bootable: true, Kernels: []Kernel{{Version: "6.12", Initramfs: true, Size: 80 << 20}}, Kubelet: "usr/bin/kubelet", KubeletVersion: "v1.36.3+build", Runtime: "usr/bin/crio",
		Agent: "usr/local/bin/refit-agent", Systemd: true, Units: []string{"crio.service", "kubelet.service", AgentUnit}, Packed: 1 << 30, Unpacked: 3 << 30}
}

// Only platforms that nodes have count, and each finding names its own.
func TestAdmitByPlatform(t *testing.T) {
	t.Parallel()
	bad := good("linux/arm64/v8")
	bad.Kernels = nil
	images := []ImageFacts{good("linux/amd64"), bad}
	for name, c := range map[string]struct {
		nodes []string
		want  string
	}{
		"unknown nodes": {nil, "linux/arm64/v8 " + ReasonKernel}, "the good one": {[]string{"linux/amd64"}, ""},
		"the bad one, without a variant": {[]string{"linux/arm64", "linux/amd64"}, "linux/arm64/v8 " + ReasonKernel},
		"one that is missing":            {[]string{"linux/amd64", "linux/riscv64"}, "linux/riscv64 " + ReasonArchitecture},
	} {
		var got []string
		for _, f := range Admit(images, PoolFacts{Platforms: c.nodes}) {
			got = append(got, f.Platform+" "+f.Reason)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Refusals come before warnings, and a warning alone refuses nothing.
func TestRefusalsComeFirst(t *testing.T) {
	t.Parallel()
	f := good("linux/amd64")
	f.KubeletVersion, f.Units = "", []string{"crio.service", AgentUnit}
	fs := Admit([]ImageFacts{f}, PoolFacts{})
	if len(fs) != 2 || Refused(fs) {
		t.Errorf("%+v", fs)
	}
	fs = Admit([]ImageFacts{f}, PoolFacts{BootFree: 1 << 20, SysrootFree: 2 << 30})
	if len(fs) != 4 || !Refused(fs) || fs[0].Reason != ReasonRoom || fs[0].Warning || !strings.Contains(fs[0].Message, "have 80 MiB, and /boot of a node has 1 MiB") || fs[3].Reason != ReasonRoom || !fs[3].Warning {
		t.Errorf("%+v", fs)
	}
}

// A program that may be in a /usr/local outside of the image is a warning.
func TestLocalOutside(t *testing.T) {
	t.Parallel()
	f := good("linux/amd64")
	f.Kubelet, f.Runtime, f.Agent, f.LocalOutside = "", "", "", true
	fs := Admit([]ImageFacts{f}, PoolFacts{APIServer: "1.30.0"})
	if len(fs) != 2 || Refused(fs) || fs[0].Reason != ReasonKubelet || fs[1].Reason != ReasonRuntime {
		t.Errorf("%+v", fs)
	}
}

// The reason words are those of the API.
func TestAdmissionReasonsAreTheAPIs(t *testing.T) {
	t.Parallel()
	words := func(file, prefix string) (out []string) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, prefix) && len(v.Values) == 1 {
				w, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, w)
			}
			return true
		})
		return out
	}
	api := words("../../api/v1alpha1/conditions.go", "ReasonOSImage")
	mine := words("admission.go", "Reason")
	if len(mine) < 14 {
		t.Fatal(mine)
	}
	for _, w := range mine {
		if !slices.Contains(api, w) {
			t.Errorf("%s is no reason of the API", w)
		}
	}
}
