package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// maxSupport is the size of an archive in bytes: it goes by mail, or by a phone's line.
	maxSupport = 5_000_000
	// maxSupportLog is how much of one log is read, in bytes; maxSupportPods how many pods.
	maxSupportLog, maxSupportPods = 1 << 20, 5000
	// maxSupportLogs is what logs and journals have of the archive in any case, in bytes.
	maxSupportLogs = 1_500_000
	// supportPage is the page size of lists.
	supportPage = 500
)

func newSupport(o *options) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "support", Short: "Write one file that shows the state of the cluster's updates elsewhere",
		Long: `Write one file of at most 5 MB for a person elsewhere: refit's objects, the nodes, the
pods and their budgets, events, and the log of the controller. It has the last lines of
the agents' journals too, as refit logs prints them.

refit status, plan, gate and explain read the file with --from FILE and show what they
showed in the cluster. The file has no Secrets, no files of NodeConfigs, and no commands
and variables of pods. Texts that look like a password, a token or a key are replaced.
support.json in it says what could not be read. Inspect it before you pass it on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.support(cmd.Context(), output) },
	}
	c.Flags().StringVar(&output, "output", "", "file to write (default refit-support-DATE.tar.gz)")
	return c
}

func (o *options) support(ctx context.Context, output string) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	if output == "" {
		output = "refit-support-" + now.Format("20060102-150405") + ".tar.gz"
	}
	g := &supportGathering{c: c, Support: inputs.Support{APIVersion: "refit.dev/support/v1", Kind: "Support", CreatedAt: now, Refit: componentversion.Refit(), Objects: map[string]int{}}}
	if g.Kubernetes, err = o.ServerVersion(ctx); err != nil {
		return err
	}
	if g.Cluster, err = inputs.ClusterID(ctx, c); err != nil {
		g.leftOut("the identity of the cluster", err.Error())
	}
	if err := g.gatherObjects(ctx); err != nil {
		return err
	}
	g.gatherLogs(ctx, o)
	g.gatherJournals(ctx, o)
	data, err := g.pack()
	if err != nil {
		return err
	}
	if err := fsutil.WriteFile(output, data, 0o600); err != nil {
		return err
	}
	for _, l := range g.LeftOut {
		o.Note("not in the archive: %s: %s", l.What, l.Why)
	}
	_, err = fmt.Fprintf(o.Out, "%s: %s. Texts hidden: %d. Inspect it before you pass it on.\n", output, text.Count(len(data), "byte"), g.Hidden)
	return err
}

// supportGathering collects an archive.
type supportGathering struct {
	inputs.Support
	c     client.Client
	files []supportFile
	// agents are the nodes of the NodeUpdates.
	agents []supportAgent
}

// supportFile is a file of the archive. The first ones matter most.
type supportFile struct {
	name string
	// list has the items of a list, log a text; one of both is set.
	list *inputs.SupportList
	log  []byte
}

// supportKinds are the kinds of an archive. Those that a view needs come first: when an archive is
// too large, the last ones are cut.
func supportKinds() []client.ObjectList {
	return []client.ObjectList{&v1alpha1.ClusterUpdateList{}, &v1alpha1.UpdatePoolList{}, &v1alpha1.BundleList{}, &v1alpha1.TrustPolicyList{}, &v1alpha1.UpdaterList{},
		&v1alpha1.PinnedImageSetList{}, &v1alpha1.NodeConfigList{}, &v1alpha1.NodeUpdateList{}, &corev1.NodeList{}, &v1alpha1.ContentList{},
		&v1alpha1.OSImageList{}, &v1alpha1.OSBuildList{}, &v1alpha1.BootImagePolicyList{}, &v1alpha1.BootImageStreamList{}, &v1alpha1.MachineSourceList{},
		&v1alpha1.ImageTrackList{}, &v1alpha1.InPlacePlanList{}, &policyv1.PodDisruptionBudgetList{}, &corev1.PodList{}, &eventsv1.EventList{}}
}

// gatherObjects reads all kinds. A kind that is not installed or not allowed is a gap; only an API
// server that does not answer, or a cluster without refit, ends it.
func (g *supportGathering) gatherObjects(ctx context.Context) error {
	for i, list := range supportKinds() {
		gvk, err := apiutil.GVKForObject(list, g.c.Scheme())
		if err != nil {
			return err
		}
		kind := gvk.Kind[:len(gvk.Kind)-len("List")]
		f, err := g.gatherKind(ctx, kind, list)
		switch {
		case err != nil && i == 0:
			return inputs.ListError(err)
		case meta.IsNoMatchError(err): // its area was left out at the installation
			continue
		case err != nil:
			g.leftOut(kind, err.Error())
			continue
		}
		f.name = inputs.SupportObjects + "/" + kind + ".json"
		f.list.APIVersion, f.list.Kind = gvk.GroupVersion().String(), gvk.Kind
		g.files = append(g.files, f)
	}
	return nil
}

func (g *supportGathering) leftOut(what, why string) {
	g.LeftOut = append(g.LeftOut, inputs.SupportGap{What: what, Why: text.HideSecrets(why)})
}

// gatherKind reads the objects of one kind page by page.
func (g *supportGathering) gatherKind(ctx context.Context, kind string, list client.ObjectList) (supportFile, error) {
	f := supportFile{list: &inputs.SupportList{Items: []json.RawMessage{}}}
	for next := ""; ; {
		if err := g.c.List(ctx, list, client.Limit(supportPage), client.Continue(next)); err != nil {
			return f, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error { return g.addItem(&f, kind, o) })
		if err != nil {
			return f, err
		}
		if next = list.GetContinue(); next == "" {
			return f, nil
		}
		if len(f.list.Items) >= maxSupportPods && (kind == "Pod" || kind == "Event") {
			g.leftOut(kind, fmt.Sprintf("there are more than %d: these are the first", maxSupportPods))
			return f, nil
		}
	}
}

func (g *supportGathering) addItem(f *supportFile, kind string, o runtime.Object) error {
	object, ok := o.(client.Object)
	if !ok || kind == "Event" && !isOurEvent(o) {
		return nil
	}
	g.Objects[kind]++
	if nu, ok := o.(*v1alpha1.NodeUpdate); ok {
		g.agents = append(g.agents, supportAgent{nu.Name, nu.Status.Agent != nil && nu.Status.Agent.PublicKey != "", journalRank(&nu.Status)})
	}
	item, n, err := supportItem(object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, object.GetName(), err)
	}
	g.Hidden += n
	if item == nil {
		g.leftOut(kind+" "+object.GetName(), "it looks like it has a secret")
		return nil
	}
	f.list.Items = append(f.list.Items, item)
	return nil
}

// isOurEvent reports whether an event is about refit or a node.
func isOurEvent(o runtime.Object) bool {
	e, ok := o.(*eventsv1.Event)
	if !ok {
		return false
	}
	about := e.Regarding
	return about.Kind == "Node" || about.APIVersion == v1alpha1.GroupVersion.String() ||
		slices.Contains([]string{v1alpha1.SystemNamespace, v1alpha1.NodesNamespace, v1alpha1.BuildsNamespace}, about.Namespace)
}

// gatherLogs reads the ends of the logs of refit's own pods, also of containers that ended before.
func (g *supportGathering) gatherLogs(ctx context.Context, o *options) {
	var pods corev1.PodList
	if err := g.c.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		g.leftOut("logs", err.Error())
		return
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, s := range p.Status.ContainerStatuses {
			g.gatherLog(ctx, o, p, s.Name, false)
			if s.RestartCount > 0 {
				g.gatherLog(ctx, o, p, s.Name, true)
			}
		}
	}
}

func (g *supportGathering) gatherLog(ctx context.Context, o *options, p *corev1.Pod, container string, previous bool) {
	name := p.Name + "." + container
	if previous {
		name += ".previous"
	}
	log, err := o.PodLog(ctx, p.Namespace, p.Name, container, previous, maxSupportLog)
	if err != nil {
		g.leftOut("log "+name, err.Error())
		return
	}
	g.addLog(inputs.SupportLogs+"/"+name+".log", log)
}

// addLog adds a log without what looks like a secret.
func (g *supportGathering) addLog(name string, log []byte) {
	clean := text.HideSecrets(string(log))
	if clean != string(log) {
		g.Hidden++
	}
	g.files = append(g.files, supportFile{name: name, log: []byte(clean)})
}

// pack writes the archive. What does not fit is cut, from the last file on. The objects of a large
// cluster leave room for logs.
func (g *supportGathering) pack() ([]byte, error) {
	sizes := make([]int64, len(g.files))
	var logs int64
	for i := range g.files {
		var err error
		if sizes[i], err = g.files[i].packedSize(); err != nil {
			return nil, err
		}
		if g.files[i].list == nil {
			logs += sizes[i]
		}
	}
	left := int64(maxSupport) - 100_000 // for the header and the tar headers
	for i := range g.files {
		f, room := &g.files[i], left
		if f.list != nil {
			room -= min(logs, maxSupportLogs)
		}
		if sizes[i] > room {
			var err error
			if sizes[i], err = g.cut(f, sizes[i], room); err != nil {
				return nil, err
			}
		}
		left -= sizes[i]
	}
	var out bytes.Buffer
	err := writeSupport(&out, g.CreatedAt, g.Support, g.files)
	if err == nil && out.Len() > maxSupport {
		err = fmt.Errorf("the archive has %d bytes, %d are allowed", out.Len(), maxSupport)
	}
	return out.Bytes(), err
}

// cut keeps so much of a file that it fits, and returns its size: the first objects, the end of a log.
func (g *supportGathering) cut(f *supportFile, size, left int64) (int64, error) {
	all := len(f.log)
	if f.list != nil {
		all = len(f.list.Items)
	}
	keep := int(int64(all) * max(left, 0) / size * 9 / 10)
	what := "bytes"
	if f.list != nil {
		what = "objects"
		f.list.Items = f.list.Items[:keep]
	} else {
		f.log = f.log[all-keep:]
	}
	g.leftOut(f.name, fmt.Sprintf("the archive would be larger than %d bytes: %d of %d %s are in it", maxSupport, keep, all, what))
	return f.packedSize()
}

func (f *supportFile) bytes() ([]byte, error) {
	if f.list == nil {
		return f.log, nil
	}
	return json.Marshal(f.list)
}

// packedSize is the size of the file in an archive, a little too large.
func (f *supportFile) packedSize() (int64, error) {
	data, err := f.bytes()
	if err != nil {
		return 0, err
	}
	var n counter
	z, err := gzip.NewWriterLevel(&n, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := z.Write(data); err != nil {
		return 0, err
	}
	err = z.Close()
	return int64(n) + 1024, err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func writeSupport(w io.Writer, date time.Time, header inputs.Support, files []supportFile) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	add := func(name string, data []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: date}); err != nil {
			return err
		}
		_, err := t.Write(data)
		return err
	}
	data, err := json.MarshalIndent(header, "", "  ")
	if err != nil {
		return err
	}
	errs := []error{add(inputs.SupportHeader, append(data, '\n'))}
	for i := range files {
		data, err := files[i].bytes()
		errs = append(errs, err, add(files[i].name, data))
	}
	return errors.Join(append(errs, t.Close(), z.Close())...)
}
