package joinserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/convert"
)

// withMachineCheck adds to the configuration a check that runs on the machine, if its pool
// has limits that a machine can check.
func (s *Server) withMachineCheck(ctx context.Context, r request, held *corev1.Secret, config []byte) ([]byte, error) {
	f, err := s.limits(ctx, held)
	if err != nil || len(f.Rules) == 0 {
		return config, err
	}
	ca := &corev1.Secret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: convert.Server}, ca); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the server's own authority: %w", err)
	}
	if pem := string(ca.Data["ca.crt"]); pem != "" && r.host != "" {
		f.Report = &convert.ReportTo{URL: "https://" + r.host + convert.Path + r.token, CA: pem}
	}
	program, err := ignition.ParseProgram(held.Annotations[convert.AnnotationAgent])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of Secret %s/%s: %w", convert.AnnotationAgent, held.Namespace, held.Name, err)
	}
	data, err := f.JSON()
	if err != nil {
		return nil, err
	}
	out, err := ignition.WithCheck(config, data, convert.LimitsPath, program)
	if err != nil {
		return nil, fmt.Errorf("configuration in Secret %s/%s: %w", held.Namespace, held.Name, err)
	}
	return out, nil
}

// limits for machines of a pool: what its Secret says, and the rules of its policy
// and of that one's streams for what runs now.
func (s *Server) limits(ctx context.Context, held *corev1.Secret) (*convert.SkewLimits, error) {
	an := held.Annotations
	f := &convert.SkewLimits{Pool: strings.TrimPrefix(held.Name, "first-boot-"), Source: an[convert.AnnotationSource], Fix: an[convert.AnnotationFix]}
	if least := an[convert.AnnotationMinimumOS]; least != "" {
		f.Rules = append(f.Rules, v1alpha1.SkewRule{Name: "minimum-os", MinimumOS: least})
	}
	name := an[convert.AnnotationPolicy]
	if name == "" {
		return f, nil
	}
	p := &v1alpha1.BootImagePolicy{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return nil, fmt.Errorf("annotation %s of Secret %s/%s: BootImagePolicy %s: %w", convert.AnnotationPolicy, held.Namespace, held.Name, name, err)
	}
	src, err := s.source(ctx, held)
	if err != nil {
		return nil, err
	}
	if cmp.Or(src.Spec.Skew, p.Spec.Skew.Mode) == skew.None { // the risk was taken
		return f, nil
	}
	rules, releases, err := s.readStreams(ctx, p)
	if err != nil {
		return nil, err
	}
	f.Rules = append(f.Rules, convert.MachineRules(append(rules, p.Spec.Skew.Rules...))...)
	f.Waivers = p.Spec.Skew.Waivers
	t := convert.SkewTarget(p.Status.Release, releases, p, src, false)
	f.Target = convert.LimitsTarget{Kubernetes: t.Kubernetes, Release: t.Release, OS: t.OS}
	return f, nil
}

// source is the MachineSource of a pool's machines, an empty one if the pool names none or it is
// gone.
func (s *Server) source(ctx context.Context, held *corev1.Secret) (*v1alpha1.MachineSource, error) {
	src := &v1alpha1.MachineSource{}
	name := held.Annotations[convert.AnnotationSource]
	if name == "" {
		return src, nil
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, src); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("annotation %s of Secret %s/%s: MachineSource %s: %w", convert.AnnotationSource, held.Namespace, held.Name, name, err)
	}
	return src, nil
}

// recordedTooOld returns what refit recorded of the pool's image if that is too old for the
// running version, else empty. An image of unknown age is for the machine's own check.
func (s *Server) recordedTooOld(ctx context.Context, held *corev1.Secret) (string, error) {
	src, err := s.source(ctx, held)
	if err != nil || src.Spec.Skew == skew.None {
		return "", err
	}
	c := meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionNewEnough)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonBootImageTooOld {
		return "", nil
	}
	return "its boot image is too old by MachineSource " + src.Name + ": " + strings.TrimSuffix(c.Message, "."), nil
}

// readStreams of a policy: their rules, and which releases they are for.
func (s *Server) readStreams(ctx context.Context, p *v1alpha1.BootImagePolicy) (rules []v1alpha1.SkewRule, releases []convert.StreamRelease, err error) {
	for _, name := range p.Spec.Streams {
		st := &v1alpha1.BootImageStream{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: name}, st)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("read BootImageStream %s: %w", name, err)
		}
		rules = append(rules, st.Spec.Rules...)
		releases = append(releases, convert.StreamRelease{Release: st.Status.Release, Kubernetes: st.Status.Kubernetes, OS: st.Status.OS})
	}
	return rules, releases, nil
}

// Limits of a report and of what is kept of it.
const (
	maxRefusalEvents = 16 << 10
	mostKept         = 480
	refusalInterval  = time.Hour
)

// receiveReport takes a machine's word that its own check refused it. It is believed from
// the address that the configuration was given to.
func (s *Server) receiveReport(ctx context.Context, w http.ResponseWriter, r *http.Request, token, from string) {
	var t convert.RefusalReport
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRefusalEvents)).Decode(&t); err != nil || t.Message == "" {
		http.Error(w, "a report is JSON with a message", http.StatusBadRequest)
		return
	}
	used, err := s.usedBy(ctx, token, from)
	if err != nil {
		s.writeRefusal(w, err)
		return
	}
	_, held, err := s.pool(ctx, used.Labels[convert.LabelJoinPool])
	if err == nil {
		err = s.recordRefusal(ctx, used, held, from, t.Message)
	}
	if err != nil {
		s.writeRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// usedBy is the record of a token that an address used within the last hour.
func (s *Server) usedBy(ctx context.Context, token, from string) (*corev1.Secret, error) {
	r, err := s.readSecret(ctx, token)
	if err != nil {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339, r.Annotations[convert.AnnotationJoinUsedAt])
	if err != nil || r.Annotations[convert.AnnotationJoinUsedBy] != from || s.Now().Sub(at) > refusalInterval {
		return nil, errToken
	}
	return r, nil
}

// recordRefusal records that a machine cannot join, and emits one event. The same refusal
// again writes nothing.
func (s *Server) recordRefusal(ctx context.Context, r, held *corev1.Secret, from, why string) error {
	why = text.Truncate(strings.ToValidUTF8(strings.TrimSpace(why), "?"), mostKept)
	if r.Annotations[convert.AnnotationRefused] == why && r.Annotations[convert.AnnotationRefusedFrom] == from {
		return nil
	}
	r.Annotations[convert.AnnotationRefused], r.Annotations[convert.AnnotationRefusedFrom] = why, from
	r.Annotations[convert.AnnotationRefusedAt] = s.Now().UTC().Format(time.RFC3339)
	err := s.Client.Update(ctx, r)
	switch {
	case apierrors.IsConflict(err): // the same machine asked twice at once, and the other one says it
		return nil
	case err != nil:
		return fmt.Errorf("keep that a machine was refused: %w", err)
	}
	s.Events.Eventf(held, nil, corev1.EventTypeWarning, v1alpha1.ReasonBootImageTooOld, "Join", "a machine at %s: %s", from, why)
	return nil
}
