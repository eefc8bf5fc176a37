package distribution

import (
	"cmp"
	"regexp"
	"strings"
)

// Build is what a version says of the distribution that built it.
type Build struct {
	// Release is the version without the build, Text what follows.
	Release, Text string
	// Distribution is the name of a row, "" if the version has no build or an unknown one.
	Distribution string
	// Number is the number of the build, without leading zeros; "" if the build has no order:
	// the kubelet of k0s does not report it, and EKS has hashes.
	Number string
}

// builds are the forms of the rows. A number with leading zeros is none of them.
var builds = []struct {
	distribution string
	form         *regexp.Regexp
}{
	{K3s, regexp.MustCompile(`^([^+]*)\+k3s(0|[1-9][0-9]{0,8})$`)},
	{RKE2, regexp.MustCompile(`^([^+]*)\+rke2r(0|[1-9][0-9]{0,8})$`)},
	{K0s, regexp.MustCompile(`^([^+]*)\+k0s(?:\.(0|[1-9][0-9]{0,8}))?$`)},
	{EKSHybrid, regexp.MustCompile(`^([^+]*)-eks-[0-9a-f]{1,40}()$`)},
}

// SplitVersion cuts the build off a version.
func SplitVersion(version string) Build {
	for _, x := range builds {
		if m := x.form.FindStringSubmatch(version); m != nil {
			return Build{Release: m[1], Text: version[len(m[1]):], Distribution: x.distribution, Number: m[2]}
		}
	}
	release, _, _ := strings.Cut(version, "+")
	return Build{Release: release, Text: version[len(release):]}
}

// Less reports whether a build is older than another one of the same release. Builds of two
// distributions, unknown builds, and builds without a number have no order.
func (b Build) Less(o Build) bool {
	if b.Distribution != o.Distribution || b.Number == "" {
		return false
	}
	return cmp.Or(cmp.Compare(len(b.Number), len(o.Number)), cmp.Compare(b.Number, o.Number)) < 0
}

// Release returns the version of the release that a node runs. kubelet is what its kubelet
// reports, observed what its agent read of the running program: they differ where the kubelet
// does not report the build.
func Release(kubelet, observed string) string {
	if !strings.Contains(kubelet, "+") || observed == "" {
		return kubelet
	}
	have, seen := SplitVersion(kubelet), SplitVersion(observed)
	row, _ := ByName(have.Distribution)
	if row.ReleaseHidden && have.Number == "" && seen.Distribution == have.Distribution && seen.Release == have.Release {
		return observed
	}
	return kubelet
}

// MoveProblem says why refit cannot move a node's Kubernetes from one version to another
// because of its distribution, and what to do; "" if that is no obstacle. Versions without a
// known build are those of kubeadm, or of a vendor that uses it.
func MoveProblem(from, to string) (why, fix string) {
	have, want := SplitVersion(from), SplitVersion(to)
	if from == "" || to == "" {
		return "", ""
	}
	switch r, known := ByName(have.Distribution); {
	case known && !r.Updates:
		return "it runs " + r.Title + " (" + from + "), whose versions refit does not update. On " + r.Title + " refit loads and pins images, checks the gate and updates OS images",
			"update " + r.Title + " with its own tool, and plan with a bundle without kubelet, kubeadm and the program of " + r.Title
	case want.Distribution != have.Distribution:
		w, ok := ByName(want.Distribution)
		if !ok {
			w = kubeadm()
		}
		return "it runs " + from + ", and " + to + " is a version of another distribution, " + w.Title,
			"take a bundle of the distribution that the node runs"
	case known && r.ReleaseHidden && have.Number == "":
		return "it runs " + r.Title + " (" + from + "), whose kubelet does not report the build, and its agent has not reported it yet",
			"wait; if it stays: systemctl status refit-agent on the node"
	}
	return "", ""
}
