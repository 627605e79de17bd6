package atomicfile

// SyncDir does nothing: no program can sync a folder on Windows, and NTFS keeps names in
// its own journal.
func SyncDir(string) error { return nil }
