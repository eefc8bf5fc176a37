package structure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown says what each result file shows, and which numbers of it a reader wants first.
var shown = []struct {
	file, what string
	numbers    func(value) string
}{
	{"test/e2e/results/story.json", "a cluster moves one minor version from one stick", steps},
	{"test/e2e/results/runtimes.json", "containerd and CRI-O in one cluster: hold, pin, repair, update", steps},
	{"test/e2e/results/kills.json", "agent, controller, kubelet, containerd and power killed at named moments", count("points", "moments")},
	{"test/e2e/results/journal.json", "agents killed at every line of the journal", func(v value) string { return fmt.Sprintf("controller killed %v times", v.get("controllerKills")) }},
	{"test/e2e/results/faults.json", "kubelets that fail, steps that hang, full disks", steps},
	{"test/e2e/results/powercuts.json", "power cuts while nodes copy, load and pin", func(v value) string {
		return fmt.Sprintf("%v kills, %v power cuts, %v images compared, %v damaged", v.get("kills"), v.get("powerCuts"), v.get("imagesChecked"), v.get("imagesNotWhole"))
	}},
	{"test/e2e/results/tornstate.json", "damaged state files, full and read-only disks, each with a power cut", count("cases", "cases")},
	{"test/e2e/results/clock.json", "clocks set by hours and decades during each step", count("steps", "steps")},
	{"test/e2e/results/skew.json", "agents and controllers of two versions in one cluster", none},
	{"internal/controller/testdata/results/takeover.json", "the leading controller killed while a node moves (simulated agents)", func(v value) string {
		return fmt.Sprintf("the next node began after %.0f s, with a lease of %v s", v.get("nextNodeSeconds"), v.get("leaseSeconds"))
	}},
	{"internal/controller/testdata/results/registries.json", "image tracks on two real registries with tokens: 150 pages, other logins, a lagging mirror, forged and replayed proofs", func(v value) string {
		var out []string
		for _, r := range v.get("registries").([]any) {
			r := value(r.(map[string]any))
			out = append(out, fmt.Sprintf("%v: %v tags in %v pages, %d verdicts", text(r.get("program")), r.get("tags"), r.get("pages"), len(r.get("verdicts").([]any))))
		}
		return strings.Join(out, "; ")
	}},
	{"test/e2e/results/drill.json", "a whole cluster without power and network, stores wiped", func(v value) string { return fmt.Sprintf("all nodes Ready after %.0f s", v.get("readySeconds")) }},
	{"test/e2e/results/lookalike-hold-k3s.json", "three nodes of a look-alike of k3s: detect, load, pin, repair, restart", steps},
	{"test/e2e/results/lookalike-hold-rke2.json", "the same on a look-alike of RKE2", steps},
	{"test/e2e/results/lookalike-hold-k0s.json", "the same on a look-alike of k0s, which removes its own pin of an image", steps},
	{"test/e2e/results/lookalike-update-k3s.json", "three nodes of a look-alike of k3s move to another build, then over a minor version", count("moves", "moves")},
	{"test/e2e/results/lookalike-update-rke2.json", "the same on a look-alike of RKE2", count("moves", "moves")},
	{"test/e2e/results/lookalike-update-k0s.json", "the same on a look-alike of k0s", count("moves", "moves")},
	{"test/e2e/results/lookalike-documented-k3s.json", "a look-alike of k3s moves by the documented way, node by node", documentedWay},
	{"test/e2e/results/lookalike-documented-rke2.json", "the same on a look-alike of RKE2", documentedWay},
	{"test/e2e/results/lookalike-documented-k0s.json", "the same on a look-alike of k0s", documentedWay},
	{"test/e2e/results/lookalike-sqlite.json", "the only server of a look-alike of k3s, with SQLite, is undone over a minor version with its data", func(v value) string {
		u := value(v.get("undone").(map[string]any))
		return fmt.Sprintf("API server unavailable %.0f s, undone after %.0f s", u.get("apiUnavailableSeconds"), u.get("seconds"))
	}},
	{"test/e2e/results/lookalike-sqlite-move.json", "then its three nodes move over the minor version from one stick", func(v value) string {
		m := value(v.get("move").(map[string]any))
		return fmt.Sprintf("%s, API server unavailable %.0f s, %v retries", count("containersWithoutImage", "containers without an image")(m), m.get("apiUnavailableSeconds"), m.get("retries"))
	}},
	{"test/e2e/results/lookalike-kills-rke2-turns.json", "agent, unit, containerd and power of a look-alike of RKE2 die in turn, at every line of a move to another build and over a minor version", count("moves", "moves")},
	{"test/e2e/results/lookalike-coldstart-k0s.json", "three nodes of a look-alike of k0s lose power, all images and the agents' network at once; they start from their own copies", coldStart},
	{"test/e2e/results/lookalike-coldstart-rke2.json", "the same on a look-alike of RKE2, whose agents have a network", coldStart},
	{"test/e2e/results/lookalike-coldstart-k3s.json", "the same on a look-alike of k3s, whose agents have a network", coldStart},
	{"test/e2e/results/lookalike-hops-k3s.json", "a look-alike of k3s moves over two minor versions in one update, from one FAT32 stick, with a power cut of all nodes between", steps},
	{"test/e2e/results/lookalike-hops-rke2.json", "the same on a look-alike of RKE2", steps},
	{"test/e2e/results/lookalike-hops-k0s.json", "the same on a look-alike of k0s", steps},
	{"test/e2e/results/later.json", "nodes that join later, or lost their disk", steps},
	{"test/e2e/results/pullrecords.json", "the kubelet's records of pulls that were cut off", steps},
	{"test/e2e/results/controlplanes.json", "three control-plane nodes behind HAProxy are updated", func(v value) string {
		return fmt.Sprintf("%v of %v requests failed", v.get("failedRequests"), v.get("requests"))
	}},
	{"test/e2e/results/exchangekills.json", "kubelet, containerd and power killed at every line of the exchange of a control plane", count("kills", "victims")},
	{"test/e2e/results/fromregistry.json", "a cluster is updated from a registry: one node fetches, the others take it from that node", count("nodes", "nodes")},
	{"test/e2e/results/helm.json", "Helm installs, upgrades and uninstalls refit on a cluster, which is updated with a health check of its pool", steps},
	{"test/e2e/results/page.json", "the status page in Chromium during an update: pictures, axe-core, no request elsewhere", count("moments", "moments")},
	{"test/e2e/results/cutoff.json", "a node that a firewall cuts off undoes it by itself, also over a power cut", count("runs", "runs")},
	{"test/e2e/results/fromdelta.json", "a cluster is updated from a delta on a FAT32 stick", func(v value) string {
		return fmt.Sprintf("%.3f of the bytes of the full bundle", v.get("deltaBytes").(float64)/v.get("fullBytes").(float64))
	}},
	{"test/e2e/results/owncluster.json", "a kubeadm cluster made without refit is updated from a FAT32 stick, by the commands of its page", func(v value) string {
		nodes := value(v.get("measured").(map[string]any)).get("imageBytesOfNodes").([]any)[0].(map[string]any)
		disk := func(node string) string {
			n := value(nodes[node].(map[string]any))
			return fmt.Sprintf("%.0f and %.0f MiB", n.get("before").(float64)/(1<<20), n.get("after").(float64)/(1<<20))
		}
		return steps(v) + ", images of a worker take " + disk("n2") + " on disk before and after, those of the control plane " + disk("n1")
	}},
	{"test/e2e/results/howtos.json", "the commands of how-to pages, typed on one cluster from an empty directory to an update that is done", typedBlocks},
	{"test/e2e/results/howtos-servers.json", "the commands of two how-to pages, typed on a cluster with an external updater and a registry", typedPages},
	{"test/e2e/results/howtos-k3s.json", "the commands of the page about k3s, typed for a look-alike of it", typedPages},
	{"test/e2e/results/howtos-hops.json", "the commands of the page about several minor versions, typed on a cluster that makes two hops", typedPages},
	{"test/e2e/results/hops.json", "a kubeadm cluster moves over two minor versions in one update, from one FAT32 stick, with a power cut of all nodes between", steps},
	{"test/e2e/results/livecluster.json", "a running cluster restarts from its own bundle, without registry, power and images", steps},
	{"test/e2e/results/oldreleases.json", "images of an old release leave the nodes, a full disk recovers", func(v value) string {
		return fmt.Sprintf("removed %v s after the next release, %v s on the full disk", measuredOnce(v, "secondsUntilRemoved"), measuredOnce(v, "secondsUntilRemovedFromTheFullDisk"))
	}},
	{"test/e2e/results/updaters.json", "every built-in updater on real nodes", count("seen", "observations")},
	{"test/e2e/results/variants.json", "one node, three control planes, other shapes of a cluster", count("variants", "variants")},
	{"test/e2e/results/oracle.json", "predicted restarts, reproduced on real kubelets", count("situations", "situations")},
	{"test/e2e/results/networkagent.json", "the pod of kube-proxy is replaced without a drain, with requests all the time", func(v value) string {
		sent, failed := 0.0, 0.0
		for _, r := range v.get("requests").([]any) {
			one := value(r.(map[string]any))
			sent, failed = sent+one.get("requests").(float64), failed+one.get("failed").(float64)
		}
		return fmt.Sprintf("%.0f replacements, %.0f of %.0f requests failed", v.get("replacements"), failed, sent)
	}},
	{"test/e2e/results/tracks.json", "image tracks on real nodes", none},
	{"test/e2e/results/osimage.json", "OS images built, booted through libostree, rolled back", count("Moves", "moves")},
	{"test/e2e/results/osbuild.json", "a Containerfile built by an unprivileged Job", none},
	{"test/e2e/results/oshosts.json", "OS images staged before the drain, drift", count("Drift", "drift policies")},
	{"test/e2e/results/oswell.json", "an OS image whose kubelet does not start", count("Failures", "failures undone")},
	{"test/e2e/results/osreach.json", "a node that boots an OS image and stays off, one that a firewall cuts off with an image, images that are refused before a node is touched", count("Refused", "refusals")},
	{"test/e2e/results/ossingle.json", "the only node of a cluster boots an OS image, and returns from one whose kubelet does not start", count("Moves", "moves")},
	{"test/e2e/results/osplanes.json", "three control-plane nodes boot an OS image one by one, and the first returns from one whose kubelet does not start", count("Moves", "moves")},
	{"test/boot/results/b.json", "a machine with GRUB, libostree and a kernel of its own boots an OS image, in QEMU", bootedMachine},
	{"test/boot/results/c.json", "an OS image whose kernel panics: GRUB returns to the image before", bootedMachine},
	{"test/boot/results/d.json", "an OS image whose systemd hangs: the watchdog restarts, GRUB returns", bootedMachine},
	{"test/boot/results/e.json", "an OS image without the agent: the boot check, then GRUB", bootedMachine},
	{"test/boot/results/f.json", "an OS image with a network file that cuts the node off: the agent returns", bootedMachine},
	{"test/e2e/results/osimage-noregistry.json", "OS images without any registry", count("Builds", "builds")},
	{"bench/results/simulate-30000.json", "simulated nodes through a real API server", func(v value) string {
		return fmt.Sprintf("%v nodes, wall %.3f of the bound, %.1f writes a node, %.0f MB in the controller", v.get("nodes"), v.get("wallOfBound"), v.get("writesPerNode"), v.get("controllerRSSBytes").(float64)/1e6)
	}},
	{"bench/results/spread.json", "one stick to eight and sixteen hosts, against the time of one copy", spread},
	{"bench/results/spread-capped.json", "limits of bandwidth, measured in packets", none},
	{"bench/results/load.json", "loading into containerd, against ctr image import", func(v value) string {
		r := value(v.get("ratios").(map[string]any))
		return fmt.Sprintf("%.2f of its time, %.2f of its CPU", r.get("wall"), r.get("cpu"))
	}},
	{"bench/results/size.json", "what the programs are made of, by Go module", func(v value) string {
		agent := value(v.get("refit-agent").(map[string]any))
		return fmt.Sprintf("the agent has %.1f MB", agent.get("fileBytes").(float64)/1e6)
	}},
	{"bench/results/receipts.json", "receipts of 500 sites verified and added up", func(v value) string {
		return fmt.Sprintf("%.2f s, the limit is %.0f s, %.1f of the time to read and verify them alone", v.get("bestSeconds"), v.get("limitSeconds"), v.get("ratio"))
	}},
	{"bench/results/idle.json", "an agent that holds a bundle and idles", func(v value) string {
		idle := value(v.get("idle").(map[string]any))
		return fmt.Sprintf("%.1f MiB resident, %.1f of them pages of the program", idle.get("residentKiB").(float64)/1024, idle.get("programKiB").(float64)/1024)
	}},
	{"bench/results/controlplane.json", "a control plane replaced together, and by kubeadm alone", func(v value) string {
		us, kubeadm := value(v.get("together").(map[string]any)), value(v.get("kubeadm").(map[string]any))
		return fmt.Sprintf("API server unavailable %.1f s and %.1f s, update %.0f s and %.0f s", us.get("apiUnavailableSeconds"), kubeadm.get("apiUnavailableSeconds"), us.get("updateSeconds"), kubeadm.get("updateSeconds"))
	}},
	{"bench/results/create.json", "bundle create and verify, against crane, oras, skopeo and one hash pass", func(v value) string {
		made := fmt.Sprintf("%.2f of the CPU of crane and a hash pass, %.0f MiB", v.get("ratio"), v.get("refitPeakRSSMiB"))
		if v["verify"] == nil {
			return made
		}
		checked := value(value(v.get("verify").(map[string]any)).get("refit").(map[string]any))
		return made + fmt.Sprintf("; verify %.2f of the CPU of a hash pass, %.0f MiB", v.get("verifyRatio"), checked.get("peakRSSMiB"))
	}},
	{"bench/results/media.json", "reading a bundle from a stick's file system, against its device, and checking it, against one hash pass", func(v value) string {
		var all []string
		formats := v.get("formats").(map[string]any)
		for _, kind := range slices.Sorted(maps.Keys(formats)) {
			file := value(value(formats[kind].(map[string]any)).get("file").(map[string]any))
			all = append(all, fmt.Sprintf("%s %.2f", kind, file.get("ofRaw")))
		}
		ratios := value(value(v.get("verify").(map[string]any)).get("ratios").(map[string]any))
		return strings.Join(all, ", ") + fmt.Sprintf(" of the device; a check takes %.2f of the time and %.2f of the CPU of a hash pass", ratios.get("wall"), ratios.get("cpu"))
	}},
	{"bench/results/delta.json", "the delta of a patch release of Kubernetes", func(v value) string {
		c := value(v.get("kubernetes").(map[string]any))
		return fmt.Sprintf("%.3f of the full bundle, %.1f of the CPU of a plain load", c.get("share"), c.get("apply"))
	}},
	{"bench/results/delta-images.json", "the delta between two versions of thirty images, layers in fast gzip", func(v value) string {
		c := value(v.get("images").(map[string]any))
		return fmt.Sprintf("%.3f of the full bundle, %.1f of the CPU of a plain load", c.get("share"), c.get("apply"))
	}},
}

type value map[string]any

// measuredOnce is the only value of something that a story measured.
func measuredOnce(v value, what string) any {
	return v.get("measured").(map[string]any)[what].([]any)[0]
}

// get finds a member; its first letter may be in either case.
func (v value) get(name string) any {
	if x, ok := v[name]; ok {
		return x
	}
	return v[strings.ToUpper(name[:1])+name[1:]]
}

// origin is a member of the result, or of the machine that it is from.
func (v value) origin(name string) string {
	if s := text(v.get(name)); s != "" {
		return s
	}
	machine, _ := v.get("machine").(map[string]any)
	return text(machine[name])
}

// spread has the best run of each case.
func spread(v value) string {
	best := v.get("best").(map[string]any)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(best)) {
		run := best[name].(map[string]any)
		out = append(out, fmt.Sprintf("%s: %.2f of the bound, %.1f s of CPU", name, run["ofBound"], run["cpuSecondsOfAllHosts"]))
	}
	return strings.Join(out, ". ")
}

// bootedMachine has the starts of a machine, and the time from the first on.
func bootedMachine(v value) string {
	return fmt.Sprintf("%s, %s after %.0f s on a busy machine", count("grub", "starts")(v), v.get("booted"), v.get("secondsFromFirstStart"))
}

// typedBlocks counts the pages whose commands a test typed, and their blocks.
func typedBlocks(v value) string {
	all := v.get("pages").(map[string]any)
	pages, blocks := 0, 0
	for _, p := range all {
		if n := int(value(p.(map[string]any)).get("typed").(float64)); n > 0 {
			pages, blocks = pages+1, blocks+n
		}
	}
	return fmt.Sprintf("%d blocks of %d of %d pages", blocks, pages, len(all))
}

// typedPages of a test that types some pages only.
func typedPages(v value) string {
	pages, blocks := v.get("typed").(map[string]any), 0
	for _, p := range pages {
		blocks += len(p.([]any))
	}
	return fmt.Sprintf("%d blocks, %s", blocks, steps(v))
}

// documentedWay counts the containers that waited for an image.
func documentedWay(v value) string {
	return count("containersWithoutImage", "containers without an image")(value(v.get("documentedWay").(map[string]any)))
}

func coldStart(v value) string {
	s := value(v.get("start").(map[string]any))
	return fmt.Sprintf("all containers run after %.0f s, %v requests for a registry", s.get("allReadySeconds"), s.get("requestsForRegistry"))
}

func none(value) string    { return "" }
func steps(v value) string { return count("steps", "steps")(v) }

func count(member, noun string) func(value) string {
	return func(v value) string {
		n := 0
		switch x := v.get(member).(type) {
		case []any:
			n = len(x)
		case map[string]any:
			n = len(x)
		}
		return fmt.Sprintf("%d %s", n, noun)
	}
}

func text(x any) string {
	s, _ := x.(string)
	return s
}

// The page of evidence has a line for every result file, made from the file itself.
func TestEvidence(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("# Evidence\n\nEach file was written by the test that measured, and names the commit that it measured, where there is one. Older ones were not run again since.\n" +
		"This page is made from them: `go test ./test/structure -run Evidence -update`.\n\n| what was shown | numbers | date | commit | file |\n| --- | --- | --- | --- | --- |\n")
	listed := map[string]bool{}
	for _, s := range shown {
		listed[s.file] = true
		data, err := os.ReadFile(filepath.Join("../..", s.file))
		if err != nil {
			t.Fatal(err)
		}
		var v value
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("%s: %v", s.file, err)
		}
		date, _, _ := strings.Cut(v.origin("date"), "T")
		commit := v.origin("commit")
		if commit == "" && strings.HasPrefix(s.file, "test/") {
			t.Errorf("%s does not name the commit that was measured", s.file)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.9s | [%s](../%s) |\n", s.what, s.numbers(v), date, commit, filepath.Base(s.file), s.file)
	}
	for _, pattern := range []string{"../../test/*/results/*.json", "../../bench/results/*.json"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if name := strings.TrimPrefix(f, "../../"); !listed[name] {
				t.Errorf("%s is not in the page of evidence: add it to shown", name)
			}
		}
	}
	const page = "../../docs/evidence.md"
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, _ := os.ReadFile(page); !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s differs from the result files: go test ./test/structure -run Evidence -update", page)
	}
}
