//go:build linux && (amd64 || arm64)

// Package gvisorfix works around what the revision of gVisor in go.mod does wrong, or
// slowly, in boxes. Read this list before an update of gVisor. For each: what gVisor does,
// what is done about it here, and when that can be deleted.
//
//   - Sets of epoll in a saved box ([DropStaleEpollInterests], epoll.go). gVisor saves the
//     links between a set's interests, so that it saves removed ones as well, and takes each
//     interest that it loads for ready: the set of a restored box reports for ever that a
//     closed file has hung up. At its first wait a restored box empties, by reflection, the
//     interests that are linked and not in their set. Delete it with a revision that has
//     google/gvisor#14147, which saves no list of what is ready, once
//     TestASetOfARestoredBoxTellsOfNothingThatWasRemoved passes without it. Until then
//     TestTheSetsOfEpollAreKnown fails where the fields have changed.
//
//   - A barrier at start ([SkipMembarrier], membarrier.go). Package hostmm asks the host's
//     kernel for private barriers of memory when it is initialized, which takes 8 to 13 ms
//     in each sentry and gofer, and only the platform KVM uses them. A seccomp filter
//     answers that one request. Delete it when gVisor asks at the first use.
//
//   - Files that children inherit ([CloseFilesOnExec], [OwnFiles], files.go). gVisor's gofer
//     client makes a pipe when it is initialized, and the client of a sentry's control makes
//     and receives files, all without O_CLOEXEC: each program that is started would have
//     them, and so a box another one's memory. Every open file is kept from children, and
//     no child is started before that is done. Delete it when gVisor opens them with
//     O_CLOEXEC.
//
//   - Memory that is mapped twice ([RegisterPlatform], platform.go, space.go). When one page
//     is missing gVisor maps all that lies together, with pages that are there already, and
//     each of these costs a fault again. A platform that wraps systrap maps only what is
//     missing. Delete it when the memory manager leaves alone what is mapped; "Why do a
//     box's pages come from a platform of our own?" in RATIONALE.md has the numbers.
//
//   - Memory in small pages ([HugePageSettings], [HugePagesAhead], huge.go). A box's memory
//     is a file of the sentry's, which the kernel backs by huge pages only where the
//     operator has set shmem_enabled, nearly nowhere. The same platform asks for a huge page
//     where a program is about to fill one. Delete it when gVisor does so itself
//     (MADV_COLLAPSE), or takes anonymous memory; the numbers are in the same place.
//
//   - Folders that only the server changes beside the box ([CacheFolders], foldercache.go,
//     foldercompare.go, folderlayout.go, folderclock.go). gVisor either asks the host at each
//     part of each path, or believes that a folder is its own alone. Folders are put into the
//     second mode, and whenever the server has raised a number all that is remembered is
//     compared with the host before a task makes its next system call, with gVisor's own
//     functions, under gVisor's own locks. The fields are found by reflection; where one is
//     not what it was, nothing is cached, doctor says so, and TestTheGofersFieldsAreKnown
//     fails. Delete it when gVisor can be told to compare; "Why are the folders of a box
//     cached by the sentry?" in RATIONALE.md has the numbers.
package gvisorfix
