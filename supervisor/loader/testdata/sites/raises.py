raise ValueError('theirs')
