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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/osversion"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry"
)

// Stream that could be read.
type Stream struct {
	Name string
	Data *bootstream.Stream
	// Release and Kubernetes version it is for; Kubernetes is empty if nobody says.
	Release, Kubernetes string
	Rules               []v1alpha1.SkewRule
	// Strange are uploads that are of no file of the stream, by their sums.
	Strange []string
}

// Loader reads streams.
type Loader struct {
	Client client.Client
	// Live reads ConfigMaps and Contents past the cache.
	Live client.Reader
	Now  func() time.Time
	// Servers guards the connections to web servers.
	Servers *outbound.Guard
	// Brought reads a file of a bundle: see bundlefiles.Reader.
	Brought func(ctx context.Context, digest, name string, most int64) (*bundlefiles.File, error)
	// Registry reads artifacts.
	Registry *registry.Poller
}

// Load reads all streams and says on each what came of it. running is the newest
// Kubernetes version of a control-plane node that is Ready, empty if none is.
func (l *Loader) Load(ctx context.Context, list []v1alpha1.BootImageStream, running string) (map[string]*Stream, error) {
	out, named := map[string]*Stream{}, map[string]bool{}
	var errs []error
	for i := range list {
		o := &list[i]
		st := v1alpha1.BootImageStreamStatus{ObservedGeneration: o.Generation, Content: o.Status.Content, FetchedAt: o.Status.FetchedAt, Source: o.Status.Source, Conditions: append([]metav1.Condition(nil), o.Status.Conditions...)}
		s, err := l.read(ctx, o, &st)
		c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStreamUnusable, ObservedGeneration: o.Generation,
			LastTransitionTime: metav1.NewTime(l.Now().Truncate(time.Second))}
		switch {
		case err != nil:
			c.Message = text.Truncate(err.Error(), longMessage)
		default:
			out[o.Name] = s
			st.Release, st.Kubernetes, st.OS, st.Images = s.Release, s.Kubernetes, s.Data.OS(), int32(len(s.Data.Images))
			st.Architectures, st.Platforms, st.OSStreams = s.Data.Architectures(), s.Data.Platforms(), s.Data.OSStreams()
			c.Status, c.Reason, c.Message = stamp(s, running)
			c.Message = text.Truncate(c.Message+strange(s), longMessage)
		}
		meta.SetStatusCondition(&st.Conditions, c)
		named[st.Content] = true
		if !equality.Semantic.DeepEqual(o.Status, st) {
			errs = append(errs, client.IgnoreNotFound(ssa.Status(ctx, l.Client, ssa.Object{Kind: "BootImageStream", Name: o.Name, UID: string(o.UID)}, &st)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	return out, l.sweep(ctx, named)
}

// contentRest is how long data that was fetched stays when no stream names it.
const contentRest = 10 * time.Minute

func (l *Loader) sweep(ctx context.Context, named map[string]bool) error {
	var contents v1alpha1.ContentList
	if err := l.Client.List(ctx, &contents, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return err
	}
	var errs []error
	for i := range contents.Items {
		c := &contents.Items[i]
		if c.Type == v1alpha1.ContentStream && !named[c.Name] && l.Now().Sub(c.CreationTimestamp.Time) > contentRest {
			errs = append(errs, client.IgnoreNotFound(l.Client.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}

// stamp says whether the stream is in use for this cluster itself. Objects that
// name a version of their own (Cluster API) are judged by that.
func stamp(s *Stream, running string) (metav1.ConditionStatus, string, string) {
	if s.Kubernetes == "" {
		return metav1.ConditionFalse, v1alpha1.ReasonStreamNotStamped, "nobody says which Kubernetes version release " + s.Release + " brings, so it is not used: set spec.kubernetes"
	}
	if !s.For(running) {
		return metav1.ConditionFalse, v1alpha1.ReasonStreamNotStamped, fmt.Sprintf("it is for Kubernetes %s; no control-plane node that is Ready runs it yet. Machine managers that name a version themselves use it from there on", s.Kubernetes)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonAsExpected, fmt.Sprintf("%d images for release %s", len(s.Data.Images), s.Release)
}

// strange: an upload of another release is no fault, and of no use.
func strange(s *Stream) string {
	if len(s.Strange) == 0 {
		return ""
	}
	return "; no file of it has the SHA-256 that spec.uploaded names: " + strings.Join(s.Strange, ", ")
}

// For reports whether machines of a version may start from the stream's images:
// it is not for a later one.
func (s *Stream) For(version string) bool {
	have, errH := osversion.Parse(version)
	want, errW := osversion.Parse(s.Kubernetes)
	if errH != nil || errW != nil {
		return false
	}
	c, err := have.Compare(want)
	return err == nil && c >= 0
}

// Newest of the named streams for a version, nil if there is none.
func Newest(all map[string]*Stream, names []string, version string) *Stream {
	var fit []*Stream
	for _, n := range names {
		if s := all[n]; s != nil && s.For(version) {
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
	x, errX := osversion.Parse(a)
	y, errY := osversion.Parse(b)
	if errX != nil || errY != nil {
		return errX == nil
	}
	c, err := x.Compare(y)
	return err == nil && c > 0
}

func (l *Loader) read(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) (*Stream, error) {
	data, err := l.data(ctx, o, st)
	if err != nil {
		return nil, err
	}
	s := &Stream{Name: o.Name, Data: data, Rules: o.Spec.Rules}
	s.Release = cmp.Or(o.Spec.Release, data.Release, data.Brought.Release)
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
	s.Strange = data.Uploaded(uploads)
	s.Kubernetes, err = kubernetes(o.Spec.Kubernetes, cmp.Or(data.Kubernetes, data.Brought.Kubernetes), s.Release)
	return s, err
}

// kubernetes is the version that a release brings: what somebody says, or the
// release itself if it is one of Kubernetes.
func kubernetes(spec, data, release string) (string, error) {
	v, err := osversion.Parse(release)
	if err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	said := cmp.Or(spec, data)
	if said == "" && v.Scheme == osversion.SemVer && v.Major == 1 {
		return release, nil
	}
	if said == "" {
		return "", nil
	}
	if _, err := osversion.Parse(said); err != nil {
		return "", fmt.Errorf("kubernetes: %w", err)
	}
	return said, nil
}

func (l *Loader) data(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
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
	from, err := l.source(o)
	if err != nil {
		return nil, err
	}
	return l.fetched(ctx, o, st, from)
}
