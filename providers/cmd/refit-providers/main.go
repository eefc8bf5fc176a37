package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{Use: "refit-providers", Short: "Ask clouds about boot images, and upload files to them", SilenceUsage: true, SilenceErrors: true}
	var path string
	c.PersistentFlags().StringVar(&path, "config", "/etc/refit-providers/config.yaml", "configuration file")
	c.AddCommand(newCheck(&path), newServe(&path))
	return c
}

// errMissing is the error of a check that found images that machines cannot start from.
var errMissing = errors.New("some images are missing")

func newCheck(path *string) *cobra.Command {
	var output string
	var upload bool
	c := &cobra.Command{Use: "check", Short: "Ask every cloud once, and print the answers", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		p, err := newProgram(*path)
		if err != nil {
			return err
		}
		list, reports, err := p.pass(cmd.Context(), upload)
		if err != nil {
			return err
		}
		if output != "" {
			data, err := bootstream.EncodeGeneric(list)
			if err != nil {
				return err
			}
			if err := os.WriteFile(output, data, 0o644); err != nil {
				return err
			}
		}
		return printReports(cmd.OutOrStdout(), reports)
	}}
	c.Flags().StringVar(&output, "output", "", "write the list for a BootImageStream to a file")
	c.Flags().BoolVar(&upload, "upload", false, "upload missing files to the clouds that have upload: true")
	return c
}

// printReports prints a line for each image and cloud.
func printReports(w io.Writer, reports []cloud.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLOUD\tARCHITECTURE\tVERSION\tIMAGE\tSTATE\tREMARK")
	missing := false
	for _, r := range reports {
		state, remark := r.State(time.Now())
		missing = missing || state != cloud.Present
		fmt.Fprintln(t, strings.Join([]string{r.Site.Name, r.Image.Key.Architecture, r.Image.Version, r.Name(), state, remark}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if missing || len(reports) == 0 {
		return errMissing
	}
	return nil
}

func newServe(path *string) *cobra.Command {
	var listen, certificate, key string
	c := &cobra.Command{Use: "serve", Short: "Ask the clouds again and again, upload missing files, and serve the list", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		p, err := newProgram(*path)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return err
		}
		return p.serve(cmd.Context(), l, certificate, key)
	}}
	c.Flags().StringVar(&listen, "listen", ":8443", "address to serve https on")
	c.Flags().StringVar(&certificate, "certificate", "/etc/refit-providers/tls/tls.crt", "certificate in PEM")
	c.Flags().StringVar(&key, "key", "/etc/refit-providers/tls/tls.key", "its key in PEM")
	return c
}

// program asks, uploads and serves.
type program struct {
	config *configuration
	asker  *cloud.Asker
	client *http.Client
	served server
}

func newProgram(path string) (*program, error) {
	c, err := readConfiguration(path)
	if err != nil {
		return nil, err
	}
	a, err := c.asker(slog.Info)
	if err != nil {
		return nil, err
	}
	return &program{config: c, asker: a, client: &http.Client{Timeout: time.Minute, CheckRedirect: onlyHTTPS}}, nil
}

func onlyHTTPS(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" || len(via) > 5 {
		return errors.New("the server redirects to an address without https, or more than five times")
	}
	return nil
}

// pass asks every cloud, serves the answers, and then uploads: an upload may take hours.
func (p *program) pass(ctx context.Context, upload bool) (*bootstream.Stream, []cloud.Report, error) {
	s, err := p.stream(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("stream %s: %w", p.config.Stream, err)
	}
	reports := p.asker.Ask(ctx, s)
	list := cloud.List(s, reports, p.asker.Now())
	if err := p.served.set(list); err != nil || !upload {
		return list, reports, err
	}
	reports = p.asker.Upload(ctx, reports)
	list = cloud.List(s, reports, p.asker.Now())
	return list, reports, p.served.set(list)
}

// stream reads the wanted images.
func (p *program) stream(ctx context.Context) (*bootstream.Stream, error) {
	if !strings.HasPrefix(p.config.Stream, "https://") {
		data, err := os.ReadFile(p.config.Stream)
		if err != nil {
			return nil, err
		}
		return bootstream.Parse(data)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Stream, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, bootstream.Largest+1))
	if err != nil {
		return nil, err
	}
	return bootstream.Parse(data)
}
