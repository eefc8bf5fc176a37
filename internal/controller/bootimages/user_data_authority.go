package bootimages

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
)

// authorityVerdict is the decision about the CA certificates in one configuration.
type authorityVerdict struct {
	bootimage.Decision
	// Wanted is the fingerprint of the wanted authority; Written is when this reconcile
	// wrote it, nil if it did not.
	Wanted  string
	Written *metav1.Time
}

// authorityRequest identifies the configuration of one machine manager and its history.
type authorityRequest struct {
	Secret  client.ObjectKey
	Mode    string
	Past    []v1alpha1.AuthorityWrite
	Contest bootimage.Contest
}

// UpdateAuthority checks a configuration, and writes the server's authority into it if needed.
func (k *userDataKeeper) UpdateAuthority(ctx context.Context, spec *v1alpha1.BootImageAuthority, a authorityRequest) (*authorityVerdict, error) {
	if v := k.written[a.Secret]; v != nil { // written for another manager in this reconcile
		return v, nil
	}
	in := bootimage.Authority{Now: k.Now, Mode: a.Mode, Secret: a.Secret.String(), Contest: a.Contest}
	for _, w := range a.Past {
		in.Past = append(in.Past, bootimage.Past{At: w.WrittenAt.Time, To: w.To})
	}
	s, changed := k.gatherAuthority(ctx, spec, a.Secret, &in)
	v := &authorityVerdict{Decision: bootimage.DecideAuthority(in), Wanted: in.Wanted}
	if v.Action == bootimage.Write {
		s = s.DeepCopy()
		s.Data[userDataKey] = changed
		if err := k.Write(ctx, s); err != nil {
			return nil, fmt.Errorf("write the server's authority into Secret %s: %w", a.Secret, err)
		}
		at := metav1.NewTime(k.Now.Truncate(time.Second))
		v.Written = &at
		k.written[a.Secret] = v
	}
	return v, nil
}

// maxAuthorityHistory is how many writes a status lists.
const maxAuthorityHistory = 16

// recordAuthority records a verdict in the status of a source. Without a verdict the last one
// stays if the policy manages authorities, because the configuration could not be read this
// time; else it is removed.
func recordAuthority(st, old *v1alpha1.MachineSourceStatus, secret string, v *authorityVerdict, wanted bool, generation int64, now time.Time) {
	switch {
	case v == nil && wanted:
		st.Authority = old.Authority
		return
	case v == nil:
		st.Authority = nil
		meta.RemoveStatusCondition(&st.Conditions, v1alpha1.ConditionAuthority)
		return
	}
	st.Authority = &v1alpha1.SourceAuthority{Secret: secret, Wanted: v.Wanted}
	if old.Authority != nil && old.Authority.Secret == secret {
		st.Authority.Writes = slices.Clone(old.Authority.Writes)
	}
	if v.Written != nil {
		st.Authority.Writes = append(st.Authority.Writes, v1alpha1.AuthorityWrite{WrittenAt: *v.Written, To: v.Wanted})
		st.Authority.Writes = st.Authority.Writes[max(0, len(st.Authority.Writes)-maxAuthorityHistory):]
	}
	c := metav1.Condition{Type: v1alpha1.ConditionAuthority, Status: metav1.ConditionFalse, Reason: v.Reason, Message: v.Message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if v.State == bootimage.Current || v.State == bootimage.Excluded {
		c.Status = metav1.ConditionTrue
	}
	if v.Fix != "" {
		c.Message += "; " + v.Fix
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// gatherAuthority gathers the facts, and returns the configuration with the wanted authority.
func (k *userDataKeeper) gatherAuthority(ctx context.Context, spec *v1alpha1.BootImageAuthority, key client.ObjectKey, in *bootimage.Authority) (*corev1.Secret, []byte) {
	wanted, err := k.authority(ctx, spec)
	if err != nil {
		in.Unusable = err.Error()
		return nil, nil
	}
	in.Wanted = fingerprint(wanted)
	s, err := k.secret(ctx, key)
	if err != nil {
		in.Unusable = "it cannot be read: " + err.Error()
		return nil, nil
	}
	servers, err := ignition.Servers(s.Data[userDataKey])
	switch {
	case err != nil:
		in.Left = err.Error()
		return nil, nil
	case !slices.ContainsFunc(servers, func(h string) bool { return slices.Contains(spec.Servers, h) }):
		in.Left = fmt.Sprintf("it fetches from %s, but the policy's servers are %s", orNoServer(servers), strings.Join(spec.Servers, ", "))
		return nil, nil
	}
	changed, err := ignition.ReplaceAuthority(s.Data[userDataKey], wanted)
	if err != nil {
		in.Unusable = err.Error()
		return nil, nil
	}
	in.Same = string(changed) == string(s.Data[userDataKey])
	in.Owner, in.UndoneBy, in.ForeignAt = writers(s)
	return s, changed
}

func orNoServer(hosts []string) string {
	if len(hosts) == 0 {
		return "no server"
	}
	return strings.Join(hosts, ", ")
}

// secret reads a Secret once per reconcile.
func (k *userDataKeeper) secret(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	if s := k.secrets[key]; s != nil {
		return s, nil
	}
	s := &corev1.Secret{}
	if err := k.Client.Get(ctx, key, s); err != nil {
		return nil, err
	}
	k.secrets[key] = s
	return s, nil
}

// authority returns the wanted CA certificates in PEM. It reads them once per reconcile, so
// every manager gets the same result.
func (k *userDataKeeper) authority(ctx context.Context, spec *v1alpha1.BootImageAuthority) (string, error) {
	from := spec.ConfigMap
	if a, ok := k.authorities[from]; ok {
		return a.text, a.err
	}
	text, err := k.readAuthority(ctx, from)
	k.authorities[from] = authorityResult{text, err}
	return text, err
}

func (k *userDataKeeper) readAuthority(ctx context.Context, from v1alpha1.AuthorityConfigMap) (string, error) {
	where := fmt.Sprintf("the server's authority, ConfigMap %s/%s, key %s", from.Namespace, from.Name, from.Key)
	m := &corev1.ConfigMap{}
	if err := k.Client.Get(ctx, client.ObjectKey{Namespace: from.Namespace, Name: from.Name}, m); err != nil {
		return "", fmt.Errorf("%s, cannot be read: %w", where, err)
	}
	text := m.Data[from.Key]
	n, rest := 0, []byte(text)
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		c, err := x509.ParseCertificate(b.Bytes)
		switch {
		case b.Type != "CERTIFICATE" || err != nil:
			return "", fmt.Errorf("%s, contains a block that is not a certificate", where)
		case !k.Now.Before(c.NotAfter):
			return "", fmt.Errorf("%s, has a certificate that expired at %s", where, c.NotAfter.UTC().Format(time.RFC3339))
		}
		n++
	}
	if n == 0 || strings.Contains(string(rest), "-----BEGIN") {
		return "", errors.New(where + ", is not a list of PEM certificates")
	}
	return text, nil
}

func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// writers returns who owns the Secret, and who other than refit wrote it last, and when.
func writers(s *corev1.Secret) (owner, last string, at time.Time) {
	for _, o := range s.OwnerReferences {
		owner = o.Kind + "/" + o.Name
	}
	var all []bootimage.Writer
	for _, f := range s.ManagedFields {
		w := bootimage.Writer{Name: f.Manager, Applies: f.Operation == metav1.ManagedFieldsOperationApply}
		if f.Time != nil {
			w.At = f.Time.Time
		}
		if f.FieldsV1 != nil {
			w.Fields = f.FieldsV1.GetRawBytes()
		}
		all = append(all, w)
	}
	ours := func(name string) bool { return strings.HasPrefix(name, "refit") }
	fields := [][]string{{"data", userDataKey}}
	if owner == "" {
		owner = bootimage.ForeignOwner(all, fields, ours)
	}
	last, at = bootimage.LastForeignWriter(all, fields, ours)
	return owner, last, at
}
