package bootstreams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry"
)

// Stream is a BootImageStream that could be read.
type Stream struct {
	Name string
	Data *bootstream.Stream
	// Release and Kubernetes are the versions it is for; Kubernetes is empty if unknown.
	Release, Kubernetes string
	Rules               []v1alpha1.SkewRule
	// UnmatchedUploads are the SHA-256 sums of uploads that match no file of the stream.
	UnmatchedUploads []string
}

// Loader reads streams.
type Loader struct {
	Client client.Client
	// Live reads ConfigMaps and Contents without a cache.
	Live client.Reader
	Now  func() time.Time
	// Servers restricts the connections to web servers.
	Servers *outbound.Guard
	// BundleFile reads a file of a bundle: see bundlefiles.Reader.
	BundleFile func(ctx context.Context, digest, name string, most int64) (*bundlefiles.File, error)
	// Registry reads artifacts.
	Registry *registry.Poller
	// last has the streams that could be read. It is lost with the process: then the first
	// failed check counts at once.
	last map[types.UID]lastRead
}

// Load reads all streams and writes their status. running is the newest Kubernetes version of a
// Ready control-plane node, empty if there is none.
func (l *Loader) Load(ctx context.Context, list []v1alpha1.BootImageStream, running string) (map[string]*Stream, error) {
	out, named, last := map[string]*Stream{}, map[string]bool{}, map[types.UID]lastRead{}
	var errs []error
	for i := range list {
		o := &list[i]
		st := previousStatus(o)
		s, err := l.readStream(ctx, o, &st)
		if s = l.selectStream(o, &st, s, err); s != nil {
			out[o.Name], last[o.UID] = s, lastRead{s, o.Generation}
			st.Release, st.Kubernetes, st.OS, st.Images = s.Release, s.Kubernetes, s.Data.OS(), int32(len(s.Data.Images))
			st.Architectures, st.Platforms, st.OSStreams = s.Data.Architectures(), s.Data.Platforms(), s.Data.OSStreams()
		}
		for _, c := range conditionsOf(&st, s, err, running) {
			c.ObservedGeneration, c.LastTransitionTime, c.Message = o.Generation, metav1.NewTime(l.Now().Truncate(time.Second)), text.Truncate(c.Message, maxMessage)
			meta.SetStatusCondition(&st.Conditions, c)
		}
		named[st.Content] = true
		if !equality.Semantic.DeepEqual(o.Status, st) {
			errs = append(errs, client.IgnoreNotFound(ssa.Status(ctx, l.Client, ssa.Object{Kind: "BootImageStream", Name: o.Name, UID: string(o.UID)}, &st)))
		}
	}
	l.last = last
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	return out, l.deleteUnused(ctx, named)
}

// lastRead is a stream as it was read last, for one generation of its object.
type lastRead struct {
	stream     *Stream
	generation int64
}

// previousStatus is what a check starts from. Failures of another spec do not count.
func previousStatus(o *v1alpha1.BootImageStream) v1alpha1.BootImageStreamStatus {
	st := v1alpha1.BootImageStreamStatus{ObservedGeneration: o.Generation, Content: o.Status.Content, FetchedAt: o.Status.FetchedAt, Source: o.Status.Source, Conditions: append([]metav1.Condition(nil), o.Status.Conditions...)}
	if o.Status.ObservedGeneration == o.Generation {
		st.Failures, st.FetchFailures = o.Status.Failures, o.Status.FetchFailures
	}
	return st
}

// selectStream returns the stream to use: what was read, or what was read last while the failed
// checks do not persist.
func (l *Loader) selectStream(o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus, s *Stream, err error) *Stream {
	if err == nil {
		st.Failures = nil
		return s
	}
	st.Failures = convert.AddFailure(st.Failures, err.Error(), l.Now())
	if last := l.last[o.UID]; last.generation == o.Generation && !convert.Persistent(st.Failures) {
		return last.stream
	}
	return nil
}

// conditionsOf returns Ready and Stalled. s is the stream that is used, nil if none can be; err
// is why it could not be read now.
func conditionsOf(st *v1alpha1.BootImageStreamStatus, s *Stream, err error, running string) []metav1.Condition {
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStreamUnusable}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected, Message: "no check of it fails persistently"}
	if s == nil {
		ready.Message = err.Error()
	} else {
		ready.Status, ready.Reason, ready.Message = readyCondition(s, running)
		ready.Message += failureText("the check", st.Failures) + failureText("the fetch", st.FetchFailures) + unmatchedText(s) + noticesText(s)
	}
	switch {
	case convert.Persistent(st.Failures):
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, v1alpha1.ReasonStreamUnusable, "the check "+convert.Failures(st.Failures).String()
	case convert.Persistent(st.FetchFailures):
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, v1alpha1.ReasonStreamNotFetched, "the fetch "+convert.Failures(st.FetchFailures).String()
	}
	return []metav1.Condition{ready, stalled}
}

// failureText names failed checks next to a stream that is used all the same.
func failureText(what string, f *v1alpha1.CheckFailures) string {
	if f == nil {
		return ""
	}
	return "; " + what + " " + convert.Failures(f).String()
}

// contentGrace is how long fetched data stays when no stream refers to it.
const contentGrace = 10 * time.Minute

func (l *Loader) deleteUnused(ctx context.Context, named map[string]bool) error {
	var contents v1alpha1.ContentList
	if err := l.Client.List(ctx, &contents, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return err
	}
	var errs []error
	for i := range contents.Items {
		c := &contents.Items[i]
		if c.Type == v1alpha1.ContentStream && !named[c.Name] && l.Now().Sub(c.CreationTimestamp.Time) > contentGrace {
			errs = append(errs, client.IgnoreNotFound(l.Client.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}

// readyCondition reports whether the stream is in use for this cluster itself. Machine managers
// that have a version of their own (Cluster API) use a stream by that version.
func readyCondition(s *Stream, running string) (metav1.ConditionStatus, string, string) {
	if s.Kubernetes == "" {
		return metav1.ConditionFalse, v1alpha1.ReasonStreamNotStamped, "the Kubernetes version of release " + s.Release + " is unknown, so the stream is not used: set spec.kubernetes"
	}
	if !s.UsableFor(running) {
		return metav1.ConditionFalse, v1alpha1.ReasonStreamNotStamped, fmt.Sprintf("it is for Kubernetes %s; no Ready control-plane node runs it yet. Machine managers with a version of their own use it from that version on", s.Kubernetes)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonAsExpected, fmt.Sprintf("%d images for release %s", len(s.Data.Images), s.Release)
}

// unmatchedText names uploads that match no file of the stream: of another release, which is no
// error.
func unmatchedText(s *Stream) string {
	if len(s.UnmatchedUploads) == 0 {
		return ""
	}
	return "; no file of it has the SHA-256 that spec.uploaded names: " + strings.Join(s.UnmatchedUploads, ", ")
}

// noticesText names the images about which their platforms report something.
func noticesText(s *Stream) string {
	if notices := s.Data.Notices(); len(notices) > 0 {
		return "; platforms report: " + strings.Join(notices, "; ")
	}
	return ""
}

// UsableFor reports whether machines of a version may start from the stream's images: the
// stream must not be for a later version.
func (s *Stream) UsableFor(version string) bool {
	have, errH := componentversion.ParseOS(version)
	want, errW := componentversion.ParseOS(s.Kubernetes)
	if errH != nil || errW != nil {
		return false
	}
	c, err := have.Compare(want)
	return err == nil && c >= 0
}

// Newest returns the newest of the named streams that is usable for a version, nil if there is
// none.
func Newest(all map[string]*Stream, names []string, version string) *Stream {
	var fit []*Stream
	for _, n := range names {
		if s := all[n]; s != nil && s.UsableFor(version) {
			fit = append(fit, s)
		}
	}
	sort.SliceStable(fit, func(i, j int) bool { return newer(fit[i].Kubernetes, fit[j].Kubernetes) })
	if len(fit) == 0 {
		return nil
	}
	return fit[0]
}

func newer(a, b string) bool {
	x, errX := componentversion.ParseOS(a)
	y, errY := componentversion.ParseOS(b)
	if errX != nil || errY != nil {
		return errX == nil
	}
	c, err := x.Compare(y)
	return err == nil && c > 0
}

func (l *Loader) readStream(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) (*Stream, error) {
	data, err := l.readData(ctx, o, st)
	if err != nil {
		return nil, err
	}
	s := &Stream{Name: o.Name, Data: data, Rules: o.Spec.Rules}
	s.Release = cmp.Or(o.Spec.Release, data.Release, data.Bundle.Release)
	if data.Release != "" && o.Spec.Release != "" && data.Release != o.Spec.Release {
		return nil, fmt.Errorf("spec.release is %s, the data says that it is for %s", o.Spec.Release, data.Release)
	}
	if s.Release == "" {
		return nil, errors.New("neither the data nor spec.release says which release the images are for")
	}
	data.Release = s.Release
	var uploads []bootstream.Upload
	for _, u := range o.Spec.Uploaded {
		uploads = append(uploads, bootstream.Upload{SHA256: u.SHA256, Region: u.Region, Attributes: u.Attributes})
	}
	s.UnmatchedUploads = data.AddUploads(uploads)
	s.Kubernetes, err = kubernetesVersion(o.Spec.Kubernetes, cmp.Or(data.Kubernetes, data.Bundle.Kubernetes), s.Release)
	return s, err
}

// kubernetesVersion returns the Kubernetes version of a release: the declared one, or the
// release itself if it is a Kubernetes version.
func kubernetesVersion(spec, data, release string) (string, error) {
	v, err := componentversion.ParseOS(release)
	if err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	declared := cmp.Or(spec, data)
	if declared == "" && v.Scheme == componentversion.SemVer && v.Major == 1 {
		return release, nil
	}
	if declared == "" {
		return "", nil
	}
	if _, err := componentversion.ParseOS(declared); err != nil {
		return "", fmt.Errorf("kubernetes: %w", err)
	}
	return declared, nil
}

func (l *Loader) readData(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
	switch {
	case o.Spec.Inline != nil:
		return bootstream.Parse([]byte(*o.Spec.Inline))
	case o.Spec.ConfigMap != nil:
		m := o.Spec.ConfigMap
		var cm corev1.ConfigMap
		if err := l.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Name}, &cm); err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
		}
		s, err := bootstream.ParseConfigMap(cm.Data, m.Key)
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
		}
		return s, nil
	}
	from, err := l.sourceOf(o)
	if err != nil {
		return nil, err
	}
	return l.cachedOrFetched(ctx, o, st, from)
}
