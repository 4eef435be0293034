import sys
sys.path.append('/added')
sys.mark = 1
import json
