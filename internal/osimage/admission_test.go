package osimage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
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

// Each rule alone, at both sides of its limits.
func TestEachRule(t *testing.T) {
	t.Parallel()
	full := PoolFacts{Platforms: []string{"linux/amd64"}, Drivers: []string{"bootc"}, APIServer: "v1.36.0", BootFree: 80 << 20, SysrootFree: 3 << 30, Policy: model.SignaturePolicyAccepts}
	for name, c := range map[string]struct {
		change func(*ImageFacts, *PoolFacts)
		want   string
	}{
		"a good one":                            {func(*ImageFacts, *PoolFacts) {}, ""},
		"unreadable":                            {func(f *ImageFacts, _ *PoolFacts) { f.Problem, f.Kernels = "bad", nil }, ReasonUnreadable},
		"no label":                              {func(f *ImageFacts, _ *PoolFacts) { f.Bootable = false }, ReasonNotBootable},
		"no label, plain ostree":                {func(f *ImageFacts, p *PoolFacts) { f.Bootable, p.Drivers = false, []string{"ostree"} }, "warning " + ReasonNotBootable},
		"no label, both kinds":                  {func(f *ImageFacts, p *PoolFacts) { f.Bootable, p.Drivers = false, []string{"ostree", "bootc"} }, ReasonNotBootable},
		"no kernel":                             {func(f *ImageFacts, _ *PoolFacts) { f.Kernels = nil }, ReasonKernel},
		"bound images":                          {func(f *ImageFacts, _ *PoolFacts) { f.Bound = []string{"a.container"} }, ReasonBound},
		"bound images, and hosts are not known": {func(f *ImageFacts, p *PoolFacts) { f.Bound, p.Drivers = []string{"a.container"}, nil }, ReasonBound},
		"bound images, one host with bootc": {func(f *ImageFacts, p *PoolFacts) {
			f.Bound, p.Drivers = []string{"a.container"}, []string{"ostree", "bootc"}
		}, ReasonBound},
		"bound images, hosts without bootc": {func(f *ImageFacts, p *PoolFacts) {
			f.Bound, p.Drivers = []string{"a.container"}, []string{"rpm-ostree"}
		}, ""},
		"bound images that hosts have":    {func(f *ImageFacts, _ *PoolFacts) { f.Bound, f.Provided = []string{"a.container"}, []string{PartBound} }, ""},
		"a whole OS for sysext":           {func(_ *ImageFacts, p *PoolFacts) { p.Drivers = []string{"sysext"} }, ReasonNotExtension},
		"a whole OS for some with sysext": {func(_ *ImageFacts, p *PoolFacts) { p.Drivers = []string{"bootc", "sysext"} }, ReasonNotExtension},
		"an extension": {func(f *ImageFacts, p *PoolFacts) {
			*f, p.Drivers = ImageFacts{Platform: f.Platform, Extensions: []string{"a"}}, []string{"sysext"}
		}, ""},
		"two extensions in one": {func(f *ImageFacts, p *PoolFacts) { f.Extensions, p.Drivers = []string{"a", "b"}, []string{"sysext"} }, ReasonNotExtension},
		"two kernels": {func(f *ImageFacts, _ *PoolFacts) {
			f.Kernels = append(f.Kernels, Kernel{Version: "6.13", Initramfs: true, Size: 1 << 40})
		}, ReasonKernel},
		"no initramfs":              {func(f *ImageFacts, _ *PoolFacts) { f.Kernels[0].Initramfs = false }, ReasonInitramfs},
		"no initramfs needed":       {func(f *ImageFacts, _ *PoolFacts) { f.Kernels[0].Initramfs, f.Provided = false, []string{PartInitramfs} }, ""},
		"no systemd":                {func(f *ImageFacts, _ *PoolFacts) { f.Systemd = false }, ReasonInit},
		"another init":              {func(f *ImageFacts, _ *PoolFacts) { f.Init = "/bin/busybox" }, ReasonInit},
		"another init is provided":  {func(f *ImageFacts, _ *PoolFacts) { f.Init, f.Systemd, f.Provided = "x", false, []string{PartInit} }, ""},
		"no kubelet":                {func(f *ImageFacts, _ *PoolFacts) { f.Kubelet = "" }, ReasonKubelet},
		"no kubelet, local outside": {func(f *ImageFacts, _ *PoolFacts) { f.Kubelet, f.LocalOutside = "", true }, "warning " + ReasonKubelet},
		"the kubelet is provided":   {func(f *ImageFacts, _ *PoolFacts) { f.Kubelet, f.Provided = "", []string{PartKubelet} }, ""},
		"a kernel that panics stops": {func(_ *ImageFacts, p *PoolFacts) {
			p.BootFallback = []NodeFallback{{Node: "n1", Known: true, Missing: []string{"panic", "watchdog"}}}
		}, "warning " + ReasonBootFallback},
		"no version":                {func(f *ImageFacts, _ *PoolFacts) { f.KubeletVersion = "" }, "warning " + ReasonKubeletUnknown},
		"a newer minor":             {func(f *ImageFacts, _ *PoolFacts) { f.KubeletVersion = "v1.37.0" }, ReasonKubeletSkew},
		"a newer patch":             {func(f *ImageFacts, _ *PoolFacts) { f.KubeletVersion = "1.36.9-1.1" }, ""},
		"three minors older":        {func(f *ImageFacts, _ *PoolFacts) { f.KubeletVersion = "v1.33.0" }, ""},
		"four minors older":         {func(f *ImageFacts, _ *PoolFacts) { f.KubeletVersion = "v1.32.9" }, ReasonKubeletSkew},
		"a newer major":             {func(f *ImageFacts, p *PoolFacts) { f.KubeletVersion, p.APIServer = "v2.0.0", "v1.2.0" }, ReasonKubeletSkew},
		"an older major":            {func(f *ImageFacts, p *PoolFacts) { f.KubeletVersion, p.APIServer = "v1.99.0", "v2.0.0" }, ReasonKubeletSkew},
		"an unknown server":         {func(f *ImageFacts, p *PoolFacts) { f.KubeletVersion, p.APIServer = "v9.0.0", "" }, ""},
		"no runtime":                {func(f *ImageFacts, _ *PoolFacts) { f.Runtime = "" }, ReasonRuntime},
		"no runtime, local outside": {func(f *ImageFacts, _ *PoolFacts) { f.Runtime, f.LocalOutside = "", true }, "warning " + ReasonRuntime},
		"no runtime, provided":      {func(f *ImageFacts, _ *PoolFacts) { f.Runtime, f.Provided = "", []string{PartRuntime} }, ""},
		"k3s": {func(f *ImageFacts, _ *PoolFacts) {
			f.Runtime, f.Supervised, f.Kubelet, f.Units = "", true, "usr/bin/k3s", []string{"k3s.service", AgentUnit}
		}, ""},
		"k3s and a runtime": {func(f *ImageFacts, _ *PoolFacts) {
			f.Supervised, f.Kubelet, f.Units = true, "usr/bin/k3s", []string{"k3s-agent.service", AgentUnit}
		}, ""},
		"no agent":                       {func(f *ImageFacts, _ *PoolFacts) { f.Agent = "" }, "warning " + ReasonImageAgent},
		"no agent, a node loses its own": {func(f *ImageFacts, p *PoolFacts) { f.Agent, p.LoseAgent = "", []string{"n2"} }, ReasonImageAgent},
		"an agent, a node loses its own": {func(_ *ImageFacts, p *PoolFacts) { p.LoseAgent = []string{"n2"} }, ""},
		"no agent, a transient /etc":     {func(f *ImageFacts, _ *PoolFacts) { f.Agent, f.EtcTransient = "", true }, ReasonImageAgent},
		"no agent, local outside":        {func(f *ImageFacts, _ *PoolFacts) { f.Agent, f.LocalOutside = "", true }, ""},
		"no agent, provided":             {func(f *ImageFacts, _ *PoolFacts) { f.Agent, f.Provided = "", []string{PartAgent} }, ""},
		"no unit of the kubelet":         {func(f *ImageFacts, _ *PoolFacts) { f.Units = []string{"crio.service", AgentUnit} }, "warning " + ReasonUnit},
		"no unit of the runtime":         {func(f *ImageFacts, _ *PoolFacts) { f.Units = []string{"kubelet.service", AgentUnit} }, "warning " + ReasonUnit},
		"no unit of the agent":           {func(f *ImageFacts, _ *PoolFacts) { f.Units = []string{"kubelet.service", "crio.service"} }, "warning " + ReasonUnit},
		"a transient /etc": {func(f *ImageFacts, _ *PoolFacts) {
			f.EtcTransient, f.Units = true, []string{"kubelet.service", "crio.service"}
		}, ReasonUnit},
		"a transient /etc with all": {func(f *ImageFacts, _ *PoolFacts) { f.EtcTransient = true }, ""},
		"a masked unit": {func(f *ImageFacts, _ *PoolFacts) {
			f.Masked, f.Units = []string{"kubelet.service"}, []string{"crio.service", AgentUnit}
		}, ReasonUnit},
		"another unit is masked":       {func(f *ImageFacts, _ *PoolFacts) { f.Masked = []string{"x.service"} }, ""},
		"one byte on /boot is missing": {func(_ *ImageFacts, p *PoolFacts) { p.BootFree-- }, ReasonRoom},
		"the kernel is on /boot":       {func(_ *ImageFacts, p *PoolFacts) { p.BootFree, p.Kernels = 1, []string{"6.12"} }, ""},
		"one byte on /boot":            {func(_ *ImageFacts, p *PoolFacts) { p.BootFree = 1 }, ReasonRoom},
		"one byte on /sysroot":         {func(_ *ImageFacts, p *PoolFacts) { p.SysrootFree = 1 }, ReasonRoom},
		"a server that is not this": {func(f *ImageFacts, _ *PoolFacts) {
			f.Supervised, f.Kubelet, f.Masked, f.Units = true, "usr/bin/k3s", []string{"k3s.service"}, []string{"k3s-agent.service", AgentUnit}
		}, ""},
		"an unknown /boot":                   {func(_ *ImageFacts, p *PoolFacts) { p.BootFree = 0 }, ""},
		"one byte is missing unpacked":       {func(_ *ImageFacts, p *PoolFacts) { p.SysrootFree-- }, "warning " + ReasonRoom},
		"as large as /sysroot packed":        {func(_ *ImageFacts, p *PoolFacts) { p.SysrootFree = 1 << 30 }, "warning " + ReasonRoom},
		"one byte is missing packed":         {func(_ *ImageFacts, p *PoolFacts) { p.SysrootFree = 1<<30 - 1 }, ReasonRoom},
		"an unknown /sysroot":                {func(_ *ImageFacts, p *PoolFacts) { p.SysrootFree = 0 }, ""},
		"the policy rejects":                 {func(_ *ImageFacts, p *PoolFacts) { p.Policy = model.SignaturePolicyRejects }, ReasonSignaturePolicy},
		"the policy is bypassed":             {func(_ *ImageFacts, p *PoolFacts) { p.Policy = model.SignaturePolicyBypassed }, ReasonSignaturePolicy},
		"no SELinux, and nodes have none":    {func(f *ImageFacts, _ *PoolFacts) { f.WithoutSELinux = true }, ""},
		"SELinux, as nodes have it":          {func(_ *ImageFacts, p *PoolFacts) { p.Enforcing = []string{"ostree", "bootc"} }, ""},
		"no SELinux, plain ostree enforces":  {func(f *ImageFacts, p *PoolFacts) { f.WithoutSELinux, p.Enforcing = true, []string{"bootc", "ostree"} }, ReasonSELinux},
		"no SELinux, bootc enforces":         {func(f *ImageFacts, p *PoolFacts) { f.WithoutSELinux, p.Enforcing = true, []string{"bootc"} }, "warning " + ReasonSELinux},
		"no SELinux, rpm-ostree enforces it": {func(f *ImageFacts, p *PoolFacts) { f.WithoutSELinux, p.Enforcing = true, []string{"rpm-ostree"} }, "warning " + ReasonSELinux},
		"no extension, for sysext alone": {func(f *ImageFacts, p *PoolFacts) {
			*f, p.Drivers = ImageFacts{Platform: "linux/amd64"}, []string{"sysext"}
		}, ReasonNotExtension},
		"an unreadable extension": {func(f *ImageFacts, p *PoolFacts) { f.Problem, p.Drivers = "bad", []string{"sysext"} }, ReasonUnreadable},
		"packages":                {func(f *ImageFacts, p *PoolFacts) { f.Problem, p.Drivers = "bad", []string{"package"} }, ""},
		"packages and bootc":      {func(f *ImageFacts, p *PoolFacts) { f.Problem, p.Drivers = "bad", []string{"package", "bootc"} }, ReasonUnreadable},
		"no platform at all":      {func(f *ImageFacts, _ *PoolFacts) { f.Platform = "linux/arm64" }, ReasonArchitecture},
		"a longer name":           {func(f *ImageFacts, _ *PoolFacts) { f.Platform = "linux/amd64p32" }, ReasonArchitecture},
		"a variant of the nodes":  {func(_ *ImageFacts, p *PoolFacts) { p.Platforms = []string{"linux/amd64/v3"} }, ""},
	} {
		f, p := good("linux/amd64"), full
		c.change(&f, &p)
		var got []string
		for _, x := range Admit([]ImageFacts{f}, p) {
			if x.Message == "" || x.Fix == "" {
				t.Errorf("%s: %+v", name, x)
			}
			say := x.Reason
			if x.Warning {
				say = "warning " + say
			}
			got = append(got, say)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A pool decides whether hosts that do not return by themselves boot an image. One that has not said
// counts as such a host only where the pool requires it.
func TestFallback(t *testing.T) {
	t.Parallel()
	whole, bare, silent := NodeFallback{Node: "n1", Known: true}, NodeFallback{Node: "n2", Known: true, Missing: []string{"panic", "watchdog"}}, NodeFallback{Node: "n3"}
	for name, c := range map[string]struct {
		nodes    []NodeFallback
		required bool
		want     string
	}{
		"none":                  {nil, true, ""},
		"all return":            {[]NodeFallback{whole, whole}, true, ""},
		"one does not":          {[]NodeFallback{whole, bare}, false, "warning: 1 of 2 nodes (n2) do not meet"},
		"one does not, needed":  {[]NodeFallback{whole, bare, bare}, true, "2 of 3 nodes (n2, n2) do not meet what a host needs to return by itself from an image whose kernel, systemd or agent does not start: panic, watchdog"},
		"one is silent":         {[]NodeFallback{silent, whole}, false, ""},
		"one is silent, needed": {[]NodeFallback{silent, whole}, true, "1 of 2 nodes (n3) have not reported whether they return by themselves"},
		"both, needed":          {[]NodeFallback{silent, bare}, true, "watchdog; 1 of 2 nodes (n3) have not"},
	} {
		got := ""
		for _, f := range Fallback(PoolFacts{BootFallback: c.nodes, NeedsFallback: c.required}) {
			if f.Warning {
				got = "warning: "
			}
			got += f.Message
			if f.Reason != ReasonBootFallback || !strings.Contains(f.Fix, "os-hosts.md") || strings.Contains(f.Fix, "refit accept") != c.required {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || c.want != "" && strings.HasPrefix(got, "warning") == c.required {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Findings name what they are about.
func TestMessages(t *testing.T) {
	t.Parallel()
	f := good("linux/amd64")
	f.Kernels = append(f.Kernels, Kernel{Version: "6.13"})
	f.KubeletVersion = "v1.99.0"
	fs := Admit([]ImageFacts{f}, PoolFacts{APIServer: "v2.0.0"})
	if len(fs) != 2 || !strings.Contains(fs[0].Message, "2 kernels in /usr/lib/modules (6.12, 6.13)") || !strings.Contains(fs[1].Message, "older than the API server (v2.0.0)") {
		t.Errorf("%+v", fs)
	}
}

// Labels say what hosts boot, and what they have outside of the image.
func TestReadLabels(t *testing.T) {
	t.Parallel()
	for labels, want := range map[[2]string]bool{{LabelBootc, "1"}: true, {LabelBootc, "0"}: false, {LabelBootable, "1"}: true, {LabelBootable, "true"}: true, {LabelBootable, ""}: true, {LabelBootable, "0"}: false, {LabelBootable, "false"}: false, {"x", "1"}: false} {
		var f ImageFacts
		if f.ReadLabels(map[string]string{labels[0]: labels[1]}); f.Bootable != want {
			t.Errorf("%q: %v", labels, f.Bootable)
		}
	}
	var f ImageFacts
	f.ReadLabels(map[string]string{LabelHostProvides: " systemd,kubelet,kubelet, kernel,", LabelKubelet: "v1.36.3"})
	if strings.Join(f.Provided, " ") != "kubelet systemd" || f.KubeletVersion != "v1.36.3" {
		t.Errorf("%+v", f)
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
