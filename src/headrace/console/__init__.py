"""What a person looks at: figures of a server, and pictures of how a stream lies in memory."""
