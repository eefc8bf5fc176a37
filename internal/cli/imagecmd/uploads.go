package imagecmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// Upload is a file that the administrator must upload to its platform.
type Upload struct {
	v1alpha1.BootImageUpload `json:",inline"`
	// Sources that wait for it.
	Sources []string `json:"sources"`
}

// Uploads of all sources.
type Uploads struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []Upload `json:"items"`
}

func newUploads(a *inputs.Access) *cobra.Command {
	var from view
	c := &cobra.Command{
		Use: "uploads", Short: "Show the boot images to upload, and the commands for it", Args: cobra.NoArgs,
		Long: `Show the boot image files that machine managers wait for. Some platforms have no
public image (vSphere, OpenStack, Nutanix, a web server for bare metal), so you
upload the file. The printed commands fetch or extract it, check it, upload it and
mark it as uploaded. refit has no access to the platform and cannot verify the
upload.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v := s.uploads()
			return from.show(a, v)
		},
	}
	from.add(c)
	return c
}

// uploads returns each list of steps once, with all sources that wait for it.
func (s *site) uploads() Uploads {
	v := Uploads{APIVersion: "refit.dev/bootimageuploads/v1", Kind: "BootImageUploads", Items: []Upload{}}
	at := map[string]int{}
	for i := range s.sources {
		m := &s.sources[i]
		if m.Status.Upload == nil {
			continue
		}
		key := strings.Join(m.Status.Upload.Steps, "\n")
		n, ok := at[key]
		if !ok {
			n = len(v.Items)
			at[key] = n
			v.Items = append(v.Items, Upload{BootImageUpload: *m.Status.Upload})
		}
		v.Items[n].Sources = append(v.Items[n].Sources, m.Name)
	}
	return v
}

func (v Uploads) text(w io.Writer) {
	if len(v.Items) == 0 {
		fmt.Fprintln(w, "Nothing to upload.")
	}
	for _, u := range v.Items {
		fmt.Fprintf(w, "# %s, for %s\n%s\n\n", u.File, strings.Join(u.Sources, ", "), strings.Join(u.Steps, "\n"))
	}
}

var hexSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

func newUploaded(a *inputs.Access) *cobra.Command {
	var region, file string
	var set map[string]string
	c := &cobra.Command{
		Use: "uploaded STREAM SHA256 [--region R] [--set ATTRIBUTE=VALUE]", Short: "Mark a boot image as uploaded", Args: cobra.ExactArgs(2),
		Long: `Mark the file of a stream with this SHA-256 as uploaded to the platform. From then
on machine managers that select it use it. The command writes spec.uploaded of the
BootImageStream. refit cannot verify the upload; --file compares the SHA-256 of the
uploaded file.`,
		Example: "  refit bootimage uploaded rhcos-4.19 3f5c... --set template=/dc1/vm/rhcos-9.6.20251023-0",
		RunE: func(cmd *cobra.Command, args []string) error {
			u := v1alpha1.UploadedImage{SHA256: args[1], Region: region, Attributes: set}
			if err := checkUpload(u, file); err != nil {
				return err
			}
			cl, err := a.Client()
			if err != nil {
				return err
			}
			said, err := declare(cmd.Context(), cl, args[0], u)
			if err == nil {
				a.Note("%s", said)
			}
			return err
		},
	}
	c.Flags().StringVar(&region, "region", "", "region of the upload, as the policy names it (default everywhere)")
	c.Flags().StringToStringVar(&set, "set", nil, "an attribute that names it on the platform, for example template=PATH, name=NAME, id=ID")
	c.Flags().StringVar(&file, "file", "", "the file that was uploaded: it must have this SHA-256")
	return c
}

// checkUpload before anything is written.
func checkUpload(u v1alpha1.UploadedImage, file string) error {
	if !hexSum.MatchString(u.SHA256) {
		return console.UsageErrorf("%q is not a SHA-256 in lower-case hex: refit bootimage uploads prints it", u.SHA256)
	}
	for k, v := range u.Attributes {
		if k == "" || v == "" || v == strings.ToUpper(k) {
			return console.UsageErrorf("--set %s=%s: replace the placeholder by the name on the platform", k, v)
		}
	}
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return console.UsageError(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != u.SHA256 {
		return console.WithExit(console.ExitVerification, fmt.Errorf("%s has the SHA-256 %s, not %s: it is another file, or incomplete", file, got, u.SHA256))
	}
	return nil
}

// maxUploads of a stream, as the API bounds them.
const maxUploads = 64

// declare writes the upload and replaces the entry of the same file and region.
func declare(ctx context.Context, cl client.Client, stream string, u v1alpha1.UploadedImage) (string, error) {
	var o v1alpha1.BootImageStream
	if err := cl.Get(ctx, client.ObjectKey{Name: stream}, &o); err != nil {
		return "", fmt.Errorf("BootImageStream %s: %w", stream, err)
	}
	same := func(x v1alpha1.UploadedImage) bool { return x.SHA256 == u.SHA256 && x.Region == u.Region }
	if n := slices.IndexFunc(o.Spec.Uploaded, same); n >= 0 && maps.Equal(o.Spec.Uploaded[n].Attributes, u.Attributes) {
		return "already marked as uploaded", nil
	}
	before := o.DeepCopy()
	o.Spec.Uploaded = append(slices.DeleteFunc(o.Spec.Uploaded, same), u)
	if len(o.Spec.Uploaded) > maxUploads {
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("BootImageStream %s has %d uploads already: remove those of former releases (spec.uploaded)", stream, maxUploads))
	}
	if err := cl.Patch(ctx, &o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("refit-cli")); err != nil {
		return "", fmt.Errorf("BootImageStream %s: %w", stream, err)
	}
	return "marked as uploaded; refit bootimage status shows within half a minute whether the stream has such a file", nil
}
