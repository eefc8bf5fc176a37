package osimage

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// Reason words of findings; the catalogue of the API has the same.
const (
	ReasonUnreadable      = "OSImageUnreadable"
	ReasonArchitecture    = "OSImageArchitecture"
	ReasonNotBootable     = "OSImageNotBootable"
	ReasonKernel          = "OSImageKernel"
	ReasonInitramfs       = "OSImageInitramfsMissing"
	ReasonInit            = "OSImageWithoutSystemd"
	ReasonKubelet         = "OSImageKubeletMissing"
	ReasonKubeletSkew     = "OSImageKubeletSkew"
	ReasonRuntime         = "OSImageRuntimeMissing"
	ReasonImageAgent      = "OSImageAgentMissing"
	ReasonUnit            = "OSImageUnitMissing"
	ReasonRoom            = "OSImageTooLarge"
	ReasonSignaturePolicy = "OSImageSignaturePolicy"
	ReasonKubeletUnknown  = "OSImageKubeletUnknown"
	ReasonNotExtension    = "OSImageNotExtension"
	ReasonBound           = "OSImageBoundImages"
	ReasonBootFallback    = "OSBootFallbackMissing"
	ReasonSELinux         = "OSImageSELinuxMissing"
)

const (
	maxKubeletSkew = 3 // minor versions that a kubelet may be older than its API server
	kernelDir      = "/usr/lib/modules"
	driverSysext   = "sysext"
	driverBootc    = "bootc"
	driverPackage  = "package"
	driverOSTree   = "ostree"
)

// What a person can do.
const (
	hostProvides        = "; if hosts have it outside of the image, say so in its label " + LabelHostProvides
	fixBase             = "use a base image that is made to be booted, or correct the Containerfile"
	fixPlatforms        = "build the image for this platform too (spec.platforms of the OSImage), or move the nodes to a pool with an image of theirs"
	fixUnreadable       = "push the image again with a current tool"
	fixBootable         = fixBase + "; its label " + LabelBootc + "=1 or " + LabelBootable + "=1 says that"
	fixKernels          = "remove all kernels but one from the image"
	fixInitramfs        = "make it in the build (dracut --kver VERSION /usr/lib/modules/VERSION/initramfs.img)" + hostProvides
	fixInit             = "refit needs systemd: " + fixBase
	fixProgram          = "install it in the image" + hostProvides
	fixVersion          = "say it in the label " + LabelKubelet
	fixSkewNewer        = "update the control plane first, or give the pool an image with an older kubelet"
	fixSkewOlder        = "give the pool an image with a newer kubelet"
	fixAgent            = "put refit-agent and its unit into the image, or make /usr/local a link to ../var/usrlocal" + hostProvides
	fixKeepAgent        = fixAgent + "; or update refit on these nodes, if bootc does not keep their deployments itself (composefs): agents of this version outlive such an image"
	fixCarried          = "to update the agent with the image, put it and its unit into the image; refit install updates the copy"
	fixUnit             = "put the unit into the image, for example by spec.units of a NodeConfig"
	fixMasked           = "remove the link to /dev/null from the image"
	fixExtension        = "give these nodes a pool without an OSImage, or build an extension for them (os-release(5): extension-release)"
	fixBound            = "remove the links from the image; if hosts have these images or can pull them, say so in its label " + LabelHostProvides
	fixFallback         = "docs/reference/os-hosts.md says how a host gets each of them; until then try the image on a machine that you can reach"
	fixFallbackRequired = "docs/reference/os-hosts.md says how a host gets each of them; bootFallback: Warn in the UpdatePool lets hosts without them boot images, `refit accept os-images-fit` does so for this update"
	fixRoom             = "remove old deployments and images from the nodes, or give the pool a smaller image"
	fixSELinux          = "install the policy in the image (selinux-policy-targeted) and switch it on in its /etc/selinux/config, or make the hosts permissive"
	fixPolicyOCI        = "permit the transport oci in /etc/containers/policy.json of the nodes"
	fixPolicyProof      = "let a TrustPolicy (spec.images) verify the signatures of this repository, then accept the check; or permit the repository in the nodes' policy.json"
)

// PoolFacts has the known facts of the nodes that boot an image. Zero values are unknown, and
// give no finding.
type PoolFacts struct {
	// Platforms of the nodes, for example linux/arm64.
	Platforms []string
	// Drivers of the nodes: bootc, rpm-ostree, ostree, sysext, package. Without one the
	// image is for a host with bootc.
	Drivers []string
	// APIServer is the oldest version of an API server at the time of the boot.
	APIServer string
	// Kernels that the nodes run: /boot has room for those already.
	Kernels []string
	// BootFree and SysrootFree are the least free bytes of a node.
	BootFree, SysrootFree int64
	// Policy is the strictest answer of a node's signature policy.
	Policy string
	// Enforcing are the drivers of the nodes whose kernel enforces an SELinux policy.
	Enforcing []string
	// BootFallback says of each node with libostree what it misses to return by itself from an
	// image that does not come up.
	BootFallback []NodeFallback
	// LoseAgent are the nodes that did not say that their agent outlives an image without one.
	LoseAgent []string
	// NeedsFallback refuses the image for nodes that miss something, or have not said.
	NeedsFallback bool
}

// NodeFallback is what a node misses to return by itself from an image that does not come up. Nothing
// is known of it before its agent reported it.
type NodeFallback struct {
	Node    string
	Known   bool
	Missing []string
}

// Finding is one thing about an image that matters to its nodes.
type Finding struct {
	model.Blocker
	// Platform of the image that it is about, empty for all.
	Platform string `json:"platform,omitempty"`
	// Warning: it does not keep nodes from booting the image.
	Warning bool `json:"warning,omitempty"`
}

// Refused reports whether a finding keeps nodes from booting an image.
func Refused(fs []Finding) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return !f.Warning })
}

// Admit returns the findings about an image for the nodes of a pool: refusals first, then
// warnings, each in the order of the platforms.
func Admit(images []ImageFacts, pool PoolFacts) []Finding {
	if allDrivers(pool, driverPackage) {
		return nil // no image is booted there
	}
	out := append(missingPlatforms(images, pool), Fallback(pool)...)
	for i := range images {
		if len(pool.Platforms) > 0 && !slices.ContainsFunc(pool.Platforms, func(p string) bool { return runsOn(images[i].Platform, p) }) {
			continue
		}
		a := admission{f: &images[i], pool: pool}
		a.check()
		out = append(out, a.found...)
	}
	var warnings []Finding
	refusals := slices.DeleteFunc(slices.Clone(out), func(f Finding) bool { return f.Warning })
	for _, f := range out {
		if f.Warning {
			warnings = append(warnings, f)
		}
	}
	return append(refusals, warnings...)
}

func allDrivers(pool PoolFacts, driver string) bool {
	return len(pool.Drivers) > 0 && !slices.ContainsFunc(pool.Drivers, func(d string) bool { return d != driver })
}

// runsOn reports whether an image of a platform runs on nodes of another; a variant that is
// not named counts as any.
func runsOn(image, node string) bool {
	return image == node || strings.HasPrefix(image, node+"/") || strings.HasPrefix(node, image+"/")
}

func missingPlatforms(images []ImageFacts, pool PoolFacts) (out []Finding) {
	var have []string
	for _, f := range images {
		have = append(have, f.Platform)
	}
	for _, p := range pool.Platforms {
		if slices.ContainsFunc(have, func(h string) bool { return runsOn(h, p) }) {
			continue
		}
		out = append(out, Finding{Platform: p, Blocker: model.Blocker{Reason: ReasonArchitecture, Fix: fixPlatforms,
			Message: fmt.Sprintf("the image has no platform %s, which nodes have; it has %s: its programs do not run there", p, strings.Join(have, ", "))}})
	}
	return out
}

type admission struct {
	f     *ImageFacts
	pool  PoolFacts
	found []Finding
}

func (a *admission) add(warning bool, reason, fix, format string, args ...any) {
	a.found = append(a.found, Finding{Platform: a.f.Platform, Warning: warning, Blocker: model.Blocker{Reason: reason, Fix: fix, Message: fmt.Sprintf(format, args...)}})
}

func (a *admission) check() {
	if a.f.Problem != "" {
		a.add(false, ReasonUnreadable, fixUnreadable, "the image cannot be read: %s", a.f.Problem)
		return
	}
	a.extension()
	if allDrivers(a.pool, driverSysext) {
		return // it is laid over /usr of another OS, which has all of it
	}
	a.bootable()
	a.bound()
	a.kernel()
	a.init()
	a.kubelet()
	a.skew()
	a.runtime()
	a.agent()
	a.units()
	a.room()
	a.policy()
	a.selinux()
}

// bootable: bootc and rpm-ostree refuse an image without the label; refit itself writes the
// commit on a host with ostree alone.
func (a *admission) bootable() {
	if !a.f.Bootable {
		a.add(allDrivers(a.pool, driverOSTree), ReasonNotBootable, fixBootable, "the image has neither the label %s=1 nor %s: bootc and rpm-ostree refuse to boot it", LabelBootc, LabelBootable)
	}
}

// extension: systemd-sysext answers on ordinary hosts of packages too, and takes no whole OS.
func (a *admission) extension() {
	if slices.Contains(a.pool.Drivers, driverSysext) && len(a.f.Extensions) != 1 {
		a.add(false, ReasonNotExtension, fixExtension, "nodes of the pool have an OS of packages with systemd-sysext, which takes only an extension: the image has %d files /usr/lib/extension-release.d/extension-release.NAME, and must have one", len(a.f.Extensions))
	}
}

// bound: bootc pulls these images after it has staged, and fails as a whole if it cannot.
func (a *admission) bound() {
	if len(a.f.Bound) > 0 && !a.f.provides(PartBound) && (len(a.pool.Drivers) == 0 || slices.Contains(a.pool.Drivers, driverBootc)) {
		a.add(false, ReasonBound, fixBound, "the image binds images that bootc pulls from their registries while it stages (/usr/lib/bootc/bound-images.d: %s), and refit does not bring them", strings.Join(a.f.Bound, ", "))
	}
}

func (a *admission) kernel() {
	switch ks := a.f.Kernels; {
	case len(ks) == 0:
		a.add(false, ReasonKernel, fixBase, "the image has no kernel: there is no %s/VERSION/vmlinuz", kernelDir)
	case len(ks) > 1:
		var versions []string
		for _, k := range ks {
			versions = append(versions, k.Version)
		}
		a.add(false, ReasonKernel, fixKernels, "the image has %d kernels in %s (%s), and a host boots the only one", len(ks), kernelDir, strings.Join(versions, ", "))
	case !ks[0].Initramfs && !a.f.provides(PartInitramfs):
		a.add(false, ReasonInitramfs, fixInitramfs, "kernel %s has no initramfs.img next to it in %[2]s/%[1]s, so it cannot find the root of its OS", ks[0].Version, kernelDir)
	}
}

func (a *admission) init() {
	switch {
	case a.f.provides(PartInit):
	case !a.f.Systemd:
		a.add(false, ReasonInit, fixInit, "the image has no /usr/lib/systemd/systemd")
	case a.f.Init != "":
		a.add(false, ReasonInit, fixInit, "/sbin/init of the image starts %s, not systemd", a.f.Init)
	}
}

func (a *admission) kubelet() {
	if a.f.Kubelet != "" || a.f.provides(PartKubelet) {
		return
	}
	if a.f.LocalOutside {
		a.add(true, ReasonKubelet, fixProgram, "the image has no kubelet; nodes need theirs in /usr/local, which is outside of this image")
		return
	}
	a.add(false, ReasonKubelet, fixProgram, "the image has no kubelet (nor k3s, rke2 or k0s): nodes could not join after they boot it")
}

// skew compares the kubelet with the API servers: it must not be newer, and at most three
// minor versions older.
func (a *admission) skew() {
	if a.f.Kubelet == "" {
		return
	}
	v, ok := componentversion.PlainKubernetes(trimBuild(a.f.KubeletVersion))
	if !ok {
		a.add(true, ReasonKubeletUnknown, fixVersion, "the version of %s is not known: no label and no database of packages that refit reads has it", "/"+a.f.Kubelet)
		return
	}
	server, ok := componentversion.PlainKubernetes(trimBuild(a.pool.APIServer))
	switch {
	case !ok:
	case newer(v, server):
		a.add(false, ReasonKubeletSkew, fixSkewNewer, "kubelet %s of the image is newer than the API server (%s), which Kubernetes does not support", a.f.KubeletVersion, a.pool.APIServer)
	case v[0] < server[0] || server[1]-v[1] > maxKubeletSkew:
		a.add(false, ReasonKubeletSkew, fixSkewOlder, "kubelet %s of the image is more than %d minor versions older than the API server (%s)", a.f.KubeletVersion, maxKubeletSkew, a.pool.APIServer)
	}
}

func newer(a, b [3]int) bool { return a[0] > b[0] || a[0] == b[0] && a[1] > b[1] }

// trimBuild leaves out what distributions and packages append to a version.
func trimBuild(v string) string {
	v, _, _ = strings.Cut(v, "+")
	v, _, _ = strings.Cut(v, "-")
	return v
}

func (a *admission) runtime() {
	switch {
	case a.f.Runtime != "" || a.f.Supervised || a.f.provides(PartRuntime):
	case a.f.LocalOutside:
		a.add(true, ReasonRuntime, fixProgram, "the image has neither containerd nor crio; nodes need theirs in /usr/local, which is outside of this image")
	default:
		a.add(false, ReasonRuntime, fixProgram, "the image has neither containerd nor crio: no container would start")
	}
}

func (a *admission) agent() {
	switch nodes := a.pool.LoseAgent; {
	case a.f.Agent != "" || a.f.LocalOutside || a.f.provides(PartAgent):
	case a.f.EtcTransient:
		a.add(false, ReasonImageAgent, fixAgent, "the image has no %s, its /usr/local is part of the image, and its /etc is transient: nodes would lose the agent, and could not return by themselves", AgentProgram)
	case len(nodes) > 0:
		a.add(false, ReasonImageAgent, fixKeepAgent, "the image has no %s, and its /usr/local is part of the image: %s would lose the agent, and could not return by themselves (%s)", AgentProgram, text.Count(len(nodes), "node"), text.FirstOf(nodes, maxNodeNames, ", "))
	default:
		a.add(true, ReasonImageAgent, fixCarried, "the image has no %s, and its /usr/local is part of the image: nodes copy the agent that they run to /var before they boot it", AgentProgram)
	}
}

// units that must start the parts which the image has.
func (a *admission) units() {
	if a.f.Kubelet != "" {
		name := path.Base(a.f.Kubelet)
		a.unit("the kubelet", KubeletPrograms()[name])
	}
	if a.f.Runtime != "" && !a.f.Supervised {
		a.unit("the container runtime", []string{path.Base(a.f.Runtime) + ".service"})
	}
	if a.f.Agent != "" {
		a.unit("refit's agent", []string{AgentUnit})
	}
}

// unit reports that the image has none of the units that start a program.
func (a *admission) unit(what string, units []string) {
	has := func(in []string) bool {
		return slices.ContainsFunc(units, func(u string) bool { return slices.Contains(in, u) })
	}
	names := strings.Join(units, ", ")
	switch {
	case has(a.f.Masked) && !has(a.f.Units):
		a.add(false, ReasonUnit, fixMasked, "the image masks the unit of %s (%s), so it never starts", what, names)
	case has(a.f.Units):
	case a.f.EtcTransient:
		a.add(false, ReasonUnit, fixUnit, "the image has no unit that starts %s (%s), and its /etc is transient: a unit in the /etc of nodes is gone after the boot", what, names)
	default:
		a.add(true, ReasonUnit, fixUnit, "the image has no unit that starts %s (%s); nodes that have it in their own /etc keep it", what, names)
	}
}

// room: a host copies the kernel to /boot, and keeps two unpacked images until the old one is
// removed. Layers that both images share are not counted twice by the host, so that the size
// of the layers is an upper limit: it is a warning.
func (a *admission) room() {
	if len(a.f.Kernels) == 1 {
		k := a.f.Kernels[0]
		if a.pool.BootFree > 0 && k.Size > a.pool.BootFree && !slices.Contains(a.pool.Kernels, k.Version) {
			a.add(false, ReasonRoom, fixRoom, "the kernel and initramfs of the image have %s, and /boot of a node has %s free", mib(k.Size), mib(a.pool.BootFree))
		}
	}
	switch free := a.pool.SysrootFree; {
	case free <= 0:
	case a.f.Packed > free:
		a.add(false, ReasonRoom, fixRoom, "the packed image has %s, and /sysroot of a node has %s free", mib(a.f.Packed), mib(free))
	case a.f.Unpacked > free:
		a.add(true, ReasonRoom, fixRoom, "the unpacked image has at most %s, and /sysroot of a node has %s free: there is room only for what it shares with the image before", mib(a.f.Unpacked), mib(free))
	}
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// policy: refit gives the image to the host from a directory, where a rule for its registry
// does not count.
func (a *admission) policy() {
	switch a.pool.Policy {
	case model.SignaturePolicyRejects:
		a.add(false, ReasonSignaturePolicy, fixPolicyOCI, "the signature policy of a node (/etc/containers/policy.json) rejects images from a directory, so that its host refuses to stage this one")
	case model.SignaturePolicyBypassed:
		a.add(false, ReasonSignaturePolicy, fixPolicyProof, "the signature policy of a node (/etc/containers/policy.json) demands a signature of the image or rejects it, and the host does not ask the policy about an image that refit brings")
	}
}

// selinux: refit labels the files of a commit by the policy of the image. bootc and rpm-ostree label
// by themselves, and take an image without one.
func (a *admission) selinux() {
	const missing = "the image has no SELinux policy that is on (/etc/selinux/config and file_contexts of that policy)"
	switch on := a.pool.Enforcing; {
	case !a.f.WithoutSELinux || len(on) == 0:
	case slices.Contains(on, driverOSTree):
		a.add(false, ReasonSELinux, fixSELinux, missing+", and hosts of the pool with plain ostree enforce one: they refuse the image")
	default:
		a.add(true, ReasonSELinux, fixSELinux, missing+", and hosts of the pool enforce one now: after the boot they would enforce none")
	}
}

// Fallback is the finding about hosts that do not return by themselves, none if all do. The agent
// returns from an image that it runs in. From others only the boot loader does. It holds for any
// image, also for one that cannot be read.
func Fallback(pool PoolFacts) []Finding {
	var nodes, unknown, missing []string
	for _, n := range pool.BootFallback {
		switch {
		case !n.Known:
			unknown = append(unknown, n.Node)
		case len(n.Missing) > 0:
			nodes = append(nodes, n.Node)
			for _, m := range n.Missing {
				if !slices.Contains(missing, m) {
					missing = append(missing, m)
				}
			}
		}
	}
	var says []string
	if len(nodes) > 0 {
		says = append(says, fmt.Sprintf("%s (%s) do not meet what a host needs to return by itself from an image whose kernel, systemd or agent does not start: %s",
			ofAll(nodes, pool), text.FirstOf(nodes, maxNodeNames, ", "), strings.Join(missing, ", ")))
	}
	if len(unknown) > 0 && pool.NeedsFallback {
		says = append(says, fmt.Sprintf("%s (%s) have not reported whether they return by themselves", ofAll(unknown, pool), text.FirstOf(unknown, maxNodeNames, ", ")))
	}
	if len(says) == 0 {
		return nil
	}
	fix := fixFallback
	if pool.NeedsFallback {
		fix = fixFallbackRequired
	}
	return []Finding{{Warning: !pool.NeedsFallback, Blocker: model.Blocker{Reason: ReasonBootFallback, Fix: fix, Message: strings.Join(says, "; ")}}}
}

// maxNodeNames is how many nodes a finding names.
const maxNodeNames = 5

func ofAll(nodes []string, pool PoolFacts) string {
	return fmt.Sprintf("%d of %s", len(nodes), text.Count(len(pool.BootFallback), "node"))
}
