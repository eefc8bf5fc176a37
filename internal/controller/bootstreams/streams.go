// Package bootstreams reads the BootImageStreams: the data from wherever it
// stands, and whether it may be used yet.
//
// Promise: data that cannot be read is said on the object and used by nobody;
// what was fetched is kept as a Content, so that a restart and a site without a
// network have it too; nothing is fetched more often than asked for. A stream is
// never used for machines of an older release than its own.
//
// Inputs: BootImageStreams, ConfigMaps, Contents, URLs. Outputs: Stream values,
// status of the objects. Caller: controller/bootimages.
package bootstreams

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/fleet"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/osversion"
	"github.com/refit-dev/refit/internal/source/bootstream"
)

const (
	// fetchTimeout of one fetch, and largest that is kept: a Content holds no more.
	fetchTimeout = 20 * time.Second
	largest      = 900_000
	// again is how long a fetch that failed rests.
	again = time.Minute
)

// Stream that could be read.
type Stream struct {
	Name string
	Data *bootstream.Stream
	// Release and Kubernetes version it is for; Kubernetes is empty if nobody says.
	Release, Kubernetes string
	Rules               []v1alpha1.SkewRule
}

// Loader reads streams.
type Loader struct {
	Client client.Client
	// Live reads ConfigMaps and Contents past the cache.
	Live client.Reader
	Now  func() time.Time
	// Transport for tests; nil is the usual one.
	Transport http.RoundTripper
}

// Load reads all streams and says on each what came of it. running is the newest
// Kubernetes version of a control-plane node that is Ready, empty if none is.
func (l *Loader) Load(ctx context.Context, list []v1alpha1.BootImageStream, running string) (map[string]*Stream, error) {
	out, named := map[string]*Stream{}, map[string]bool{}
	var errs []error
	for i := range list {
		o := &list[i]
		st := v1alpha1.BootImageStreamStatus{ObservedGeneration: o.Generation, Content: o.Status.Content, FetchedAt: o.Status.FetchedAt, Conditions: append([]metav1.Condition(nil), o.Status.Conditions...)}
		s, err := l.read(ctx, o, &st)
		c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStreamUnusable, ObservedGeneration: o.Generation,
			LastTransitionTime: metav1.NewTime(l.Now().Truncate(time.Second))}
		switch {
		case err != nil:
			c.Message = clip(err.Error())
		default:
			out[o.Name] = s
			st.Release, st.Kubernetes, st.OS, st.Images = s.Release, s.Kubernetes, s.Data.OS(), int32(len(s.Data.Images))
			st.Architectures, st.Platforms = s.Data.Architectures(), s.Data.Platforms()
			c.Status, c.Reason, c.Message = stamp(s, running)
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

func clip(s string) string {
	if len(s) > 1000 {
		return s[:1000] + "..."
	}
	return s
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
	if s.Release = o.Spec.Release; s.Release == "" {
		s.Release = data.Release
	}
	if data.Release != "" && o.Spec.Release != "" && data.Release != o.Spec.Release {
		return nil, fmt.Errorf("spec.release is %s, the data says that it is for %s", o.Spec.Release, data.Release)
	}
	if s.Release == "" {
		return nil, errors.New("neither the data nor spec.release says which release the images are for")
	}
	data.Release = s.Release
	s.Kubernetes, err = kubernetes(o.Spec.Kubernetes, data.Kubernetes, s.Release)
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
	case o.Spec.URL != nil:
		return l.fetched(ctx, o, st)
	}
	return nil, errors.New("it names no source")
}

// fetched returns what the URL has, or had when it was asked last.
func (l *Loader) fetched(ctx context.Context, o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
	changed := o.Status.ObservedGeneration != o.Generation
	fetchErr := errors.New("it could not be fetched; it is tried again")
	if changed || l.due(o, st) {
		at := metav1.NewTime(l.Now().Truncate(time.Second))
		st.FetchedAt = &at
		s, err := l.fetchAndKeep(ctx, o.Spec.URL, st)
		if err == nil {
			return s, nil
		}
		fetchErr = err
		if changed { // what was fetched may be of another address
			st.Content = ""
		}
	}
	if st.Content == "" {
		return nil, fmt.Errorf("%s: %w", o.Spec.URL.URL, fetchErr)
	}
	var c v1alpha1.Content
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: st.Content}, &c); err != nil {
		if apierrors.IsNotFound(err) {
			st.Content, st.FetchedAt = "", nil
		}
		return nil, fmt.Errorf("what was fetched: %w", err)
	}
	return bootstream.Parse([]byte(c.Data))
}

// due: it is time to ask again. A fetch that failed rests for a while too.
func (l *Loader) due(o *v1alpha1.BootImageStream, st *v1alpha1.BootImageStreamStatus) bool {
	rest := time.Duration(o.Spec.URL.EveryMinutes) * time.Minute
	if st.Content == "" {
		rest = again
	}
	return st.FetchedAt == nil || l.Now().Sub(st.FetchedAt.Time) >= rest
}

// fetchAndKeep stores what can be read.
func (l *Loader) fetchAndKeep(ctx context.Context, u *v1alpha1.StreamURL, st *v1alpha1.BootImageStreamStatus) (*bootstream.Stream, error) {
	data, err := l.fetch(ctx, u)
	if err != nil {
		return nil, err
	}
	s, err := bootstream.Parse(data)
	if err != nil {
		return nil, err
	}
	c, err := fleet.MakeContent(ctx, l.Client, v1alpha1.ContentStream, string(data))
	if err != nil {
		return nil, err
	}
	st.Content = c.Name
	return s, nil
}

// transport trusts what the stream says.
func (l *Loader) transport(u *v1alpha1.StreamURL) (rt http.RoundTripper, done func(), err error) {
	if l.Transport != nil {
		return l.Transport, func() {}, nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if u.CABundle != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(u.CABundle)) {
			return nil, nil, errors.New("caBundle holds no certificate")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, t.CloseIdleConnections, nil
}

func (l *Loader) fetch(ctx context.Context, u *v1alpha1.StreamURL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	transport, done, err := l.transport(u)
	if err != nil {
		return nil, err
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
	if err != nil {
		return nil, err
	}
	c := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > 5 {
			return errors.New("it leads away from https, or in circles")
		}
		return nil
	}}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server says %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, largest+1))
	if err != nil {
		return nil, err
	}
	return data, checkData(data, u.SHA256)
}

func checkData(data []byte, want string) error {
	if len(data) > largest {
		return fmt.Errorf("it has more than %d bytes", largest)
	}
	if sum := sha256.Sum256(data); want != "" && hex.EncodeToString(sum[:]) != want {
		return fmt.Errorf("its SHA-256 is %x, wanted is %s", sum, want)
	}
	return nil
}
