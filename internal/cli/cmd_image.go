package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/image"
	"paddock/internal/privatefile"
)

// imageCommand is paddock image and its subcommands.
type imageCommand struct{ *cli }

func (cmd imageCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Pull, import, list and remove the images of Linux sandboxes",
		Long: `Pulls, imports, lists and removes the images that Linux sandboxes run in. They are
in the state folder, unpacked, and all sandboxes share them read-only.

A name is a reference as container tools have them (python:3.12, a registry's host
before it, a digest behind it), or one of [images] in the configuration. The name
host is this machine's own programs, which need no image.`,
	}
	c.AddCommand(cmd.pullCommand(), cmd.importCommand(), cmd.listCommand(), cmd.removeCommand(), cmd.pruneCommand())
	return c
}

func (cmd imageCommand) pullCommand() *cobra.Command {
	var asJSON bool
	var digest string
	c := &cobra.Command{
		Use: "pull NAME", Short: "Bring an image from its registry",
		Long: `Brings an image from its registry, for this machine's platform. What is there
already is not fetched again; a pull that is cut short leaves nothing half, and the
next one goes on from the layers that are whole. It prints the image's id.

Credentials are those of registries.credentials, else those of docker login or podman
login. Plain http is for loopback addresses and what registries.insecure names.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Example: `  paddock image pull python:3.12
  paddock image pull registry.example.com/team/tools@sha256:…`,
		Args: count(1, 1, "the name of an image"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.pullImage(c, args[0], digest, asJSON) },
	}
	c.Flags().StringVar(&digest, "digest", "", "take it only if it is `sha256:…`")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd imageCommand) importCommand() *cobra.Command {
	var asJSON bool
	var called string
	c := &cobra.Command{
		Use: "import FILE|DIR --name NAME", Short: "Take an image from a file or folder",
		Long: `Takes an image from a file or folder: what docker save wrote, an OCI layout (a
folder, or a tar of one), or the tar of a root file system. Tars may be compressed
with gzip or zstd. It prints the image's id.

Exit codes: 0 done, 1 failed or it is not an image, 2 wrong usage.`,
		Args: count(1, 1, "the file or folder of an image"),
		RunE: func(c *cobra.Command, args []string) error {
			if called == "" {
				return usage("an image needs a name").WithHint("paddock image import %s --name NAME", args[0])
			}
			return cmd.importImage(c, args[0], called, asJSON)
		},
	}
	c.Flags().StringVar(&called, "name", "", "call it `NAME`")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd imageCommand) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the images",
		Long: `Lists the images. One without a name was replaced under its name, and goes with
paddock image prune.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listImages(c, asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (cmd imageCommand) removeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove images",
		Long: `Takes names away from their images; an image without a name goes, with what of it
no other image has. What a sandbox runs in stays. An id (sha256:…) is for all names of
the image. It prints the names.

Exit codes: 0 all were removed, 1 not all, 2 wrong usage.`,
		Args: count(1, -1, "the names of images"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.removeImages(c, args, asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

func (cmd imageCommand) pruneCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "prune", Short: "Remove what no image needs any more",
		Long: `Removes images that have no name any more and that no sandbox runs in, layers that no
image has, and what was left of pulls that were cut short. An image that a session has
by its id stays, also while the session is asleep.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.pruneImages(c, asJSON) },
	}
	jsonFlag(c, &asJSON)
	return c
}

// withImages calls f with the store; change says that it will be changed.
func (cmd imageCommand) withImages(c *cobra.Command, change bool, f func(context.Context, *image.Store) error) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	if err := checkImages(cmd.Config); err != nil {
		return err
	}
	s, err := cmd.Images()
	if err != nil {
		return err
	}
	if change {
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err // what root unpacks there its owner could not remove
		}
	}
	return f(c.Context(), s)
}

func (cmd imageCommand) pullImage(c *cobra.Command, called, digest string, asJSON bool) error {
	return cmd.withImages(c, true, func(ctx context.Context, s *image.Store) error {
		told := cmd.tellProgress("pulling " + called)
		img, err := s.Pull(ctx, image.Request{Reference: cmd.ImageNames().Resolve(called), Digest: digest, Progress: told.tell})
		told.end()
		if err != nil {
			return err
		}
		return cmd.printImage(img, asJSON)
	})
}

func (cmd imageCommand) importImage(c *cobra.Command, file, called string, asJSON bool) error {
	return cmd.withImages(c, true, func(ctx context.Context, s *image.Store) error {
		told := cmd.tellProgress("importing " + filepath.Base(file))
		img, err := s.Import(ctx, file, called, told.tell)
		told.end()
		if err != nil {
			return err
		}
		return cmd.printImage(img, asJSON)
	})
}

// printImage prints an image that was added, and tells people what of it is
// missing.
func (cmd imageCommand) printImage(img image.Image, asJSON bool) error {
	if l := img.LeftOut; l.Owners > 0 {
		cmd.say("notice", fmt.Sprintf("%d files belong to you and not to whom the image says: only root can give files away", l.Owners))
	}
	if asJSON {
		return cmd.printJSON(img)
	}
	_, err := fmt.Fprintln(cmd.stdout, img.ID)
	return err
}

func (cmd imageCommand) listImages(c *cobra.Command, asJSON bool) error {
	return cmd.withImages(c, false, func(_ context.Context, s *image.Store) error {
		all, err := s.List()
		if err != nil {
			return err
		}
		rows := [][]string{{"NAME", "ID", "ADDED", "LAYERS", "SIZE", "DIGEST"}}
		for _, img := range all {
			names := img.Names
			if len(names) == 0 {
				names = []string{"-"}
			}
			for _, name := range names {
				digest := img.Digest
				if len(digest) > 19 {
					digest = digest[:19] + "…"
				}
				rows = append(rows, []string{plain(name), img.ID[:19], moment(img.Added), strconv.Itoa(len(img.Layers)), amount(img.Bytes), orDash(digest)})
			}
		}
		return cmd.printList(asJSON, "images", slices.Concat([]image.Image{}, all), rows)
	})
}

func (cmd imageCommand) removeImages(c *cobra.Command, names []string, asJSON bool) error {
	return cmd.withImages(c, true, func(ctx context.Context, s *image.Store) error {
		sum := struct {
			Names []string `json:"names"`
			image.Removed
		}{Names: []string{}, Removed: image.Removed{Images: []string{}}}
		var mistakes []error
		for _, called := range names {
			removed, err := s.Remove(ctx, cmd.ImageNames().Resolve(called))
			if err != nil {
				mistakes = append(mistakes, err)
				continue
			}
			sum.Names = append(sum.Names, called)
			sum.Images = append(sum.Images, removed.Images...)
			sum.Layers += removed.Layers
			sum.Bytes += removed.Bytes
			if !asJSON {
				fmt.Fprintln(cmd.stdout, called)
			}
		}
		if asJSON {
			mistakes = append(mistakes, cmd.printJSON(sum))
		}
		return errors.Join(mistakes...)
	})
}

func (cmd imageCommand) pruneImages(c *cobra.Command, asJSON bool) error {
	return cmd.withImages(c, true, func(ctx context.Context, s *image.Store) error {
		a, err := cmd.Open(app.Options{})
		if err != nil {
			return err
		}
		defer a.Close()
		needed, err := a.NeededImages()
		if err != nil {
			return err
		}
		removed, err := s.Prune(ctx, func(id string) bool { return needed[id] })
		if err != nil {
			return err
		}
		if asJSON {
			return cmd.printJSON(removed)
		}
		return cmd.printTable([][]string{
			{"images", strconv.Itoa(len(removed.Images))}, {"layers", strconv.Itoa(removed.Layers)}, {"given back", amount(removed.Bytes)},
		})
	})
}
