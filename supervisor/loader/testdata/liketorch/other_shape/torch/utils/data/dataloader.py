mark = 1
